// Package gpuhealth decides which GPUs of a node are sick by what is seen of them. It has no
// clock and reads nothing: who does so tells it what was seen and when, so every case can be
// tested without a broken GPU.
//
// There are two kinds of evidence. A condition holds or does not hold when it is read, such as
// an NVLink that is down: it has to hold for a while before the GPU is sick, and to be gone for
// a while before the GPU is well, so that a GPU on the edge is taken out once and not ten times
// a minute. An event happens and is over, such as XID 79: nothing tells that its cause is gone,
// so the GPU stays sick until the machine boots or an operator brings the GPU back.
package gpuhealth
