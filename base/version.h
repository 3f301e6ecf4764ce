// The version of longhaul, which all programs show. Set in the top CMakeLists.txt.
#ifndef LONGHAUL_BASE_VERSION_H_
#define LONGHAUL_BASE_VERSION_H_

#include <string_view>

namespace longhaul {

std::string_view Version();  // "0.1.0"

}  // namespace longhaul

#endif  // LONGHAUL_BASE_VERSION_H_
