// The numbers of format.h, for kernels of every device.
#pragma once

#include <cstdint>

namespace longhaul::codec::zip {

inline constexpr uint32_t kGroup = 1024;  // elements
inline constexpr uint32_t kLanes = 32;
inline constexpr uint32_t kRow = 256;       // elements between two eights of a lane
inline constexpr uint32_t kWindow = 7;      // exponents
inline constexpr uint32_t kLanesAtTop = 8;  // of which the window's highest exponent is reached
inline constexpr uint32_t kPlanes = 3;

}  // namespace longhaul::codec::zip
