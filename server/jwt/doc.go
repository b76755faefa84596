// Package jwt checks JSON Web Tokens (RFC 7519) of issuers that an operator has named: signature,
// issuer, audience and dates. Kubernetes service accounts and OpenID Connect providers issue such
// tokens.
//
// The algorithms are those that a method allows, never those that a token asks for, and the key
// must be one of the issuer's for that algorithm. Keys are fetched when a token names one that is
// not known, at most once in a while for each issuer, and kept while the issuer does not answer.
package jwt
