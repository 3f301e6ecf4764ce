// Copies values to messages and back, with one list of fields for both directions:
//
//   void Fields(auto&& field, MaybeConst<Flow> auto& flow) {
//     field("codec", flow.codec);  // the name in the message, the member
//
// Such a list is a function Fields for a struct. Other values need no list: numbers, texts, enums,
// CodecSpec, Strong (base/strong.h), vectors and optionals. An empty optional is an unset field.
// Aborts if a message has no field of the given name. ToMessage and FromMessage keep a reference to
// their message. Private to this folder.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/maybe_const.h"
#include "base/strong.h"
#include "run/plan/plan.h"

namespace longhaul {

class FieldsOf {
 protected:
  using Field = const google::protobuf::FieldDescriptor;
  explicit FieldsOf(const google::protobuf::Message& message)
      : type_(*message.GetDescriptor()), access_(*message.GetReflection()) {}

  Field* Find(const char* name) const {
    Field* field = type_.FindFieldByName(name);
    LH_CHECK(field != nullptr, "{} has no field {}", type_.full_name(), name);
    return field;
  }

  const google::protobuf::Descriptor& type_;
  const google::protobuf::Reflection& access_;
};

class ToMessage : public FieldsOf {
 public:
  explicit ToMessage(google::protobuf::Message* out) : FieldsOf(*out), out_(out) {}

  template <class Value>
  void operator()(const char* name, const Value& value) const {
    Set(Find(name), value);
  }

 private:
  void Set(Field* field, bool value) const { access_.SetBool(out_, field, value); }
  void Set(Field* field, uint32_t value) const { access_.SetUInt32(out_, field, value); }
  void Set(Field* field, uint64_t value) const { access_.SetUInt64(out_, field, value); }
  void Set(Field* field, double value) const { access_.SetDouble(out_, field, value); }
  void Set(Field* field, const std::string& value) const { access_.SetString(out_, field, value); }
  void Set(Field* field, const CodecSpec& codec) const { Set(field, ToString(codec)); }
  template <class Tag, class Rep>
  void Set(Field* field, const Strong<Tag, Rep>& value) const {
    Set(field, value.value());
  }
  template <class Value>
  requires std::is_enum_v<Value>
  void Set(Field* field, Value value) const {
    access_.SetEnumValue(out_, field, static_cast<int>(value));
  }
  template <class Value>
  requires std::is_class_v<Value>
  void Set(Field* field, const Value& value) const {
    Fields(ToMessage(access_.MutableMessage(out_, field)), value);
  }
  template <class Value>
  void Set(Field* field, const std::optional<Value>& value) const {
    if (value) Set(field, *value);
  }
  template <class Value>
  void Set(Field* field, const std::vector<Value>& values) const {
    for (const Value& value : values) Add(field, value);
  }

  void Add(Field* field, uint32_t value) const { access_.AddUInt32(out_, field, value); }
  void Add(Field* field, const std::string& value) const { access_.AddString(out_, field, value); }
  template <class Value>
  void Add(Field* field, const Value& value) const {
    Fields(ToMessage(access_.AddMessage(out_, field)), value);
  }

  google::protobuf::Message* const out_;
};

class FromMessage : public FieldsOf {
 public:
  explicit FromMessage(const google::protobuf::Message& in) : FieldsOf(in), in_(in) {}

  template <class Value>
  void operator()(const char* name, Value& value) const {
    Get(Find(name), &value);
  }

 private:
  void Get(Field* field, bool* out) const { *out = access_.GetBool(in_, field); }
  void Get(Field* field, uint32_t* out) const { *out = access_.GetUInt32(in_, field); }
  void Get(Field* field, uint64_t* out) const { *out = access_.GetUInt64(in_, field); }
  void Get(Field* field, double* out) const { *out = access_.GetDouble(in_, field); }
  void Get(Field* field, std::string* out) const { *out = access_.GetString(in_, field); }
  void Get(Field* field, CodecSpec* out) const { *out = CodecSpec(access_.GetString(in_, field)); }
  template <class Tag, class Rep>
  void Get(Field* field, Strong<Tag, Rep>* out) const {
    Rep value{};
    Get(field, &value);
    *out = Strong<Tag, Rep>(std::move(value));
  }
  // An enum value that this version does not know becomes 0.
  template <class Value>
  requires std::is_enum_v<Value>
  void Get(Field* field, Value* out) const {
    const int number = access_.GetEnumValue(in_, field);
    *out =
        static_cast<Value>(field->enum_type()->FindValueByNumber(number) != nullptr ? number : 0);
  }
  template <class Value>
  requires std::is_class_v<Value>
  void Get(Field* field, Value* out) const {
    Fields(FromMessage(access_.GetMessage(in_, field)), *out);
  }
  template <class Value>
  void Get(Field* field, std::optional<Value>* out) const {
    if (access_.HasField(in_, field)) Get(field, &out->emplace());
  }
  template <class Value>
  void Get(Field* field, std::vector<Value>* out) const {
    out->resize(static_cast<size_t>(access_.FieldSize(in_, field)));
    for (size_t i = 0; i < out->size(); ++i) GetOne(field, static_cast<int>(i), &(*out)[i]);
  }

  void GetOne(Field* field, int i, uint32_t* out) const {
    *out = access_.GetRepeatedUInt32(in_, field, i);
  }
  void GetOne(Field* field, int i, std::string* out) const {
    *out = access_.GetRepeatedString(in_, field, i);
  }
  template <class Value>
  void GetOne(Field* field, int i, Value* out) const {
    Fields(FromMessage(access_.GetRepeatedMessage(in_, field, i)), *out);
  }

  const google::protobuf::Message& in_;
};

}  // namespace longhaul
