package gpuhealth

// xids says what the critical XIDs mean: those that NVIDIA's catalog of XIDs lays to the GPU,
// its memory, its links or its firmware, and of which a GPU recovers by a reset at best.
//
// Others are left out on purpose. 13, 31, 43, 45, 68, 69, 94 and 109 are faults of the
// application or end with it; 63 and 156 say that a bad row was taken out of use, which is
// pending until a reset and read as a condition; 154 only says what others call for.
var xids = map[uint64]string{
	46:  "GPU stopped processing",
	48:  "double-bit ECC error",
	54:  "auxiliary power is not connected",
	61:  "internal micro-controller warning",
	62:  "internal micro-controller halt",
	64:  "row remapping failed",
	66:  "illegal access by the driver",
	74:  "NVLink error",
	79:  "fallen off the bus",
	92:  "high rate of single-bit ECC errors",
	95:  "uncontained ECC error",
	110: "security fault",
	119: "GSP does not answer",
	120: "GSP error",
	121: "chip-to-chip link error",
	140: "unrecovered ECC error",
	143: "GPU did not initialize",
	144: "NVLink error", 145: "NVLink error", 146: "NVLink error", 147: "NVLink error",
	148: "NVLink error", 149: "NVLink error", 150: "NVLink error",
	155: "NVLink went down",
	158: "fatal timeout of the GPU",
}

// Critical reports whether an XID says that a GPU is broken, and not only the application that
// used it.
func Critical(xid uint64) bool { return xids[xid] != "" }
