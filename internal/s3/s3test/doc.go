// Package s3test is an object store in memory for tests, which speaks as much of S3 as package s3. It
// verifies the signature of each request by the bytes that it received, with nothing of that package.
// Tests can make it fail in the ways in which stores do.
package s3test
