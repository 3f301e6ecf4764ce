// The headers that most files of the libraries include, precompiled (cmake/LonghaulTargets.cmake).
// Source files must still include what they use, because sanitizer builds and clang-tidy compile
// without this header.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
