// Converts vectors to repeated fields, by the ToProto of their values, and back. Private to this
// folder.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <cstddef>
#include <vector>

namespace longhaul {

template <typename Message, typename Value>
void AddAll(const std::vector<Value>& values, google::protobuf::RepeatedPtrField<Message>* out) {
  out->Reserve(static_cast<int>(values.size()));
  for (const Value& value : values) *out->Add() = ToProto(value);
}

template <typename Value, typename Message>
std::vector<Value> AllOf(const google::protobuf::RepeatedPtrField<Message>& messages,
                         Value (*from_proto)(const Message&)) {
  std::vector<Value> values;
  values.reserve(static_cast<size_t>(messages.size()));
  for (const Message& message : messages) values.push_back(from_proto(message));
  return values;
}

}  // namespace longhaul
