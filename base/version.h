// The version of longhaul, which all programs show. The top CMakeLists.txt sets it.
#pragma once

#include <string_view>

namespace longhaul {

std::string_view Version();  // "0.2.0"

}  // namespace longhaul
