// Package s3 is a client of object stores that speak the protocol of Amazon S3: put, get, list and
// delete, with requests that are signed by AWS Signature Version 4 (AWS General Reference, "Signature
// Version 4 signing process"; S3 API Reference, "Authenticating Requests"). Backups of servers and
// checkpoints of training states are kept in such stores.
//
// It is small because rota needs little of S3. The clients that exist bring dozens of modules into
// the binary that runs as a server, for features that nothing here calls. Objects are addressed by
// path, which every such store understands.
package s3
