#pragma once

#include <string>

namespace fastloader {

/// libwebp as found at run time, such as "1.2.4". Empty: this build decodes no WebP.
std::string webp_library_version();

}  // namespace fastloader
