package state

import "fmt"

// checkRestoreParts: the parts are of one upload, whose first part is there, and bounded.
func (s *State) checkRestoreParts() (err error) {
	upload := ""
	if first := s.RestorePart(0); first != nil {
		upload = first.Upload
	}
	db(s).restoreParts.scan(0, func(p *RestorePart) bool {
		switch {
		case p.Upload == "" || p.Upload != upload || len(p.Upload) > UploadBytesMax:
			err = fmt.Errorf("part %d of a backup is of upload %q, the first one of %q", p.Number, p.Upload, upload)
		case p.Number >= RestorePartsMax || len(p.Data) == 0 || len(p.Data) > RestorePartBytesMax:
			err = fmt.Errorf("part %d of a backup has %d bytes", p.Number, len(p.Data))
		}
		return err == nil
	})
	return err
}
