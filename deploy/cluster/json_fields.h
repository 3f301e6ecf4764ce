// Writes and reads a struct as a JSON object by one list of its members, a function beside it:
//
//   void Fields(auto& object, Like<Point> auto& point) {
//     object("x", point.x);
//     object("y", point.y);
//   }
//
// Members may be structs with a list of their own, vectors, optionals (null: none) and durations
// (nanoseconds). Reading throws nlohmann::json::exception where a member is missing or wrong.
#pragma once

#include <concepts>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "run/file/link_quality.h"

namespace longhaul {

template <class T, class U>
concept Like = std::same_as<std::remove_const_t<T>, U>;

class JsonWriter {
 public:
  template <class T>
  void operator()(const char* key, const T& value) {
    members_[key] = ToJson(value);
  }
  template <class T>
  void operator()(const char* key, const T& value, const T& /*absent*/) {
    (*this)(key, value);
  }

  template <class T>
  static nlohmann::json ToJson(const T& value) {
    if constexpr (requires(JsonWriter object) { Fields(object, value); }) {
      JsonWriter object;
      Fields(object, value);
      return std::move(object.members_);
    } else {
      return value;
    }
  }
  template <class T>
  static nlohmann::json ToJson(const std::vector<T>& values) {
    nlohmann::json array = nlohmann::json::array();
    for (const T& value : values) array.push_back(ToJson(value));
    return array;
  }
  template <class T>
  static nlohmann::json ToJson(const std::optional<T>& value) {
    return value ? ToJson(*value) : nlohmann::json(nullptr);
  }
  static nlohmann::json ToJson(absl::Duration value) { return absl::ToInt64Nanoseconds(value); }

 private:
  nlohmann::json members_ = nlohmann::json::object();
};

class JsonReader {
 public:
  explicit JsonReader(const nlohmann::json& object) : members_(object) {}

  template <class T>
  void operator()(const char* key, T& value) {
    Read(members_.at(key), &value);
  }
  // `absent`: the value where the object does not have the key.
  template <class T>
  void operator()(const char* key, T& value, const T& absent) {
    value = members_.value(key, absent);
  }

  template <class T>
  static void Read(const nlohmann::json& json, T* value) {
    if constexpr (requires(JsonReader reader) { Fields(reader, *value); }) {
      JsonReader reader(json);
      Fields(reader, *value);
    } else {
      json.get_to(*value);
    }
  }
  template <class T>
  static void Read(const nlohmann::json& json, std::vector<T>* values) {
    for (const nlohmann::json& item : json) Read(item, &values->emplace_back());
  }
  template <class T>
  static void Read(const nlohmann::json& json, std::optional<T>* value) {
    if (!json.is_null()) Read(json, &value->emplace());
  }
  static void Read(const nlohmann::json& json, absl::Duration* value) {
    *value = absl::Nanoseconds(json.get<int64_t>());
  }

 private:
  const nlohmann::json& members_;
};

void Fields(auto& object, Like<LinkQuality> auto& quality) {
  object("delay_ns", quality.delay);
  object("jitter_ns", quality.jitter);
  object("loss", quality.loss);
}

}  // namespace longhaul
