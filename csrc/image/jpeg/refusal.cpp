#include "image/jpeg/refusal.h"

namespace fastloader {

const char* name_of(JpegRefusal refusal) {
  switch (refusal) {
    case JpegRefusal::kNone:
      return "none";
    case JpegRefusal::kKind:
      return "kind";
    case JpegRefusal::kLayout:
      return "layout";
    case JpegRefusal::kColour:
      return "colour";
    case JpegRefusal::kScans:
      return "scans";
    case JpegRefusal::kEnd:
      return "end marker";
    case JpegRefusal::kDamage:
      return "damage";
    case JpegRefusal::kNotAsked:
      return "not asked";
  }
  return "unknown";
}

}  // namespace fastloader
