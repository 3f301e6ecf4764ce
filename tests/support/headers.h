// Precompiled header with the includes of nearly every test (cmake/LonghaulTargets.cmake). Each
// test must still include what it uses, because sanitizer builds do not use this header.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
