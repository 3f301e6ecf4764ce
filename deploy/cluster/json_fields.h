// Writes structs as JSON objects and reads them. A function beside the struct lists the members,
// for writing and for reading:
//
//   void Fields(auto&& field, MaybeConst<Point> auto& point) {
//     field("x", point.x);
//     field("y", point.y, 0.0);  // 0.0 if the object has no y
//   }
//
// MaybeConst (base/maybe_const.h) makes one function serve both. Then json(point) writes, and
// object.get_to(point) reads. A duration is a number of nanoseconds, and an optional without a
// value is null. Reading throws nlohmann::json::exception if a key is missing or has a wrong type.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "absl/time/time.h"
#include "base/maybe_const.h"
#include "run/file/link_quality.h"

namespace longhaul {

// A `field` that does nothing, to test whether T has a function Fields.
struct IgnoreField {
  void operator()(const char* /*key*/, auto&&... /*member*/) const {}
};
template <class T>
concept HasFields = requires(T& value) {
  Fields(IgnoreField(), value);
};

void Fields(auto&& field, MaybeConst<LinkQuality> auto& quality) {
  field("delay_ns", quality.delay);
  field("jitter_ns", quality.jitter);
  field("loss", quality.loss);
}

}  // namespace longhaul

namespace nlohmann {

template <longhaul::HasFields T>
struct adl_serializer<T> {
  static void to_json(json& object, const T& value) {
    Fields([&](const char* key, const auto& member,
               const auto&... /*absent*/) { object[key] = member; },
           value);
  }
  static void from_json(const json& object, T& value) {
    Fields(
        [&](const char* key, auto& member, const auto&... absent) {
          if constexpr (sizeof...(absent) > 0) {
            member = object.value(key, absent...);
          } else {
            object.at(key).get_to(member);
          }
        },
        value);
  }
};

template <>
struct adl_serializer<absl::Duration> {
  static void to_json(json& number, absl::Duration value) {
    number = absl::ToInt64Nanoseconds(value);
  }
  static void from_json(const json& number, absl::Duration& value) {
    value = absl::Nanoseconds(number.get<int64_t>());
  }
};

template <class T>
struct adl_serializer<std::optional<T>> {
  static void to_json(json& object, const std::optional<T>& value) {
    if (value) object = *value;
  }
  static void from_json(const json& object, std::optional<T>& value) {
    if (!object.is_null()) value = object.get<T>();
  }
};

}  // namespace nlohmann
