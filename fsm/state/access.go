package state

const (
	// AccessPoliciesMax bounds the policies of access rights.
	AccessPoliciesMax = 1024
	// AccessTokensMax bounds the tokens that have not expired.
	AccessTokensMax = 16384
	// AuthMethodsMax bounds the methods by which JWTs and certificates get policies.
	AuthMethodsMax = 64
	// AccessNameBytesMax bounds the name of a policy or method, and an accessor ID.
	AccessNameBytesMax = 128
	// AccessSpecBytesMax bounds the encoding of a policy or of a method.
	AccessSpecBytesMax = 64 << 10
	// TokenPoliciesMax bounds the policies of a token.
	TokenPoliciesMax = 32
	// TokenHashBytes is the length of the hash of a secret.
	TokenHashBytes = 32
	// TokenTextBytesMax bounds the description of a token, and who created it.
	TokenTextBytesMax = 256
	// TokenLifetimeMax is the longest time, in nanoseconds, after which a token expires: 10 years.
	TokenLifetimeMax = 10 * 365 * 24 * 3600 * 1_000_000_000
	// ManagementPolicy is the policy that exists always and allows everything.
	ManagementPolicy = "management"
)

// AccessPolicy is a set of access rights with a name.
type AccessPolicy struct {
	Name string
	// Spec is the encoded rota.v1.AccessPolicy, which the state machine does not read.
	Spec []byte
}

// AuthMethod says which policies callers get that no token identifies.
type AuthMethod struct {
	Name string
	// Spec is the encoded rota.v1.AuthMethod, which the state machine does not read.
	Spec []byte
}

// AccessToken is what is kept of a token: not its secret, only the secret's hash.
type AccessToken struct {
	// Accessor names the token wherever its secret must not appear.
	Accessor string
	// Hash is the SHA-256 of the secret.
	Hash []byte
	// Policies are named; a policy that does not exist gives no rights.
	Policies    []string
	Description string
	CreatedBy   string
	CreatedAt   int64
	// ExpiresAt is the log time from which the token is not valid; 0: it does not expire.
	ExpiresAt int64
}

// Expired reports whether the token is no longer valid at a log time.
func (r *AccessToken) Expired(now int64) bool { return r.ExpiresAt != 0 && r.ExpiresAt <= now }

// tokenDue is when a token expires.
type tokenDue struct {
	at       int64
	accessor string
}

func (a tokenDue) less(b tokenDue) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return a.accessor < b.accessor
}

func (r *AccessPolicy) code(c *codec) {
	c.text(&r.Name)
	c.bytes(&r.Spec)
}

func (r *AuthMethod) code(c *codec) {
	c.text(&r.Name)
	c.bytes(&r.Spec)
}

func (r *AccessToken) code(c *codec) {
	c.text(&r.Accessor)
	c.bytes(&r.Hash)
	list(c, &r.Policies, (*codec).text)
	c.text(&r.Description)
	c.text(&r.CreatedBy)
	signed(c, &r.CreatedAt)
	signed(c, &r.ExpiresAt)
}

// PutAccessPolicy stores a policy of access rights.
func (s *State) PutAccessPolicy(r *AccessPolicy) { db(s).accessPolicies.put(db(s).enc, r.Name, r) }

// DeleteAccessPolicy forgets a policy of access rights.
func (s *State) DeleteAccessPolicy(name string) { db(s).accessPolicies.delete(name) }

// AccessPolicy returns a policy of access rights, nil if there is none.
func (s *State) AccessPolicy(name string) *AccessPolicy { return db(s).accessPolicies.get(name) }

// AccessPolicyCount returns how many policies of access rights there are.
func (s *State) AccessPolicyCount() int { return db(s).accessPolicies.rows.Len() }

// AccessPolicies visits the policies whose names are after one, in the order of their names.
func (s *State) AccessPolicies(after string, fn func(*AccessPolicy) bool) {
	db(s).accessPolicies.scan(following(after), fn)
}

// PutAuthMethod stores a method by which callers get policies.
func (s *State) PutAuthMethod(r *AuthMethod) { db(s).authMethods.put(db(s).enc, r.Name, r) }

// DeleteAuthMethod forgets a method by which callers get policies.
func (s *State) DeleteAuthMethod(name string) { db(s).authMethods.delete(name) }

// AuthMethod returns a method by which callers get policies, nil if there is none.
func (s *State) AuthMethod(name string) *AuthMethod { return db(s).authMethods.get(name) }

// AuthMethodCount returns how many methods there are by which callers get policies.
func (s *State) AuthMethodCount() int { return db(s).authMethods.rows.Len() }

// AuthMethods visits all methods by which callers get policies, in the order of their names.
func (s *State) AuthMethods(fn func(*AuthMethod) bool) { db(s).authMethods.scan("", fn) }

// PutAccessToken stores a token.
func (s *State) PutAccessToken(r *AccessToken) {
	if old := db(s).accessTokens.put(db(s).enc, r.Accessor, r); old != nil {
		s.indexToken(old, false)
	}
	s.indexToken(r, true)
}

// DeleteAccessToken forgets a token.
func (s *State) DeleteAccessToken(accessor string) {
	if old := db(s).accessTokens.delete(accessor); old != nil {
		s.indexToken(old, false)
	}
}

func (s *State) indexToken(r *AccessToken, in bool) {
	x := &db(s).index
	if in {
		x.tokenHashes.Set(string(r.Hash), r.Accessor)
	} else {
		x.tokenHashes.Delete(string(r.Hash))
	}
	if r.ExpiresAt != 0 {
		include(&x.tokenDues, tokenDue{r.ExpiresAt, r.Accessor}, in)
	}
}

// AccessToken returns a token by its accessor ID, nil if there is none.
func (s *State) AccessToken(accessor string) *AccessToken { return db(s).accessTokens.get(accessor) }

// AccessTokenByHash returns the token whose secret has a hash, nil if there is none.
func (s *State) AccessTokenByHash(hash []byte) *AccessToken {
	accessor, ok := db(s).index.tokenHashes.Get(string(hash))
	if !ok {
		return nil
	}
	return db(s).accessTokens.get(accessor)
}

// AccessTokenCount returns how many tokens there are.
func (s *State) AccessTokenCount() int { return db(s).accessTokens.rows.Len() }

// AccessTokens visits the tokens whose accessor IDs are after one, in the order of these IDs.
func (s *State) AccessTokens(after string, fn func(*AccessToken) bool) {
	db(s).accessTokens.scan(following(after), fn)
}

// TokenDue returns the token that expires first, and when by log time.
func (s *State) TokenDue() (at int64, accessor string, ok bool) {
	d, ok := db(s).index.tokenDues.Min()
	return d.at, d.accessor, ok
}

// following is the least name after one; the least of all after none.
func following(after string) string {
	if after == "" {
		return ""
	}
	return after + "\x00"
}
