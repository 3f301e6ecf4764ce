// Constants of zip's format (format.h) that the kernels of all devices share.
#pragma once

#include <cstdint>

namespace longhaul::codec::zip {

inline constexpr uint32_t kGroup = 1024;  // elements
inline constexpr uint32_t kLanes = 32;
inline constexpr uint32_t kRow = 256;   // elements; each lane has 8 consecutive ones of a row
inline constexpr uint32_t kWindow = 7;  // exponents
// Number of lanes whose largest exponents must reach the highest exponent of the window.
inline constexpr uint32_t kLanesAtTop = 8;
inline constexpr uint32_t kPlanes = 3;

}  // namespace longhaul::codec::zip
