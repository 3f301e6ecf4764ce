// What nearly every test includes, precompiled (cmake/LonghaulTargets.cmake). Tests include what
// they use all the same: the sanitizer builds compile them without this.
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
