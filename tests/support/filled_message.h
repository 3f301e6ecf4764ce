// Fills every field of a message of any type, so that tests of "all messages" need no list of them.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstdint>
#include <string>

namespace longhaul::testing {

// What all fields of a kind get. Numbers are cut to the field's size.
struct Filling {
  uint64_t whole = 0;  // also of enums, which may have no such value
  double real = 0;
  std::string text = "text";
};

// Fills `message` and its messages down to `depth` levels below. Repeated fields get one element
// more. Of a oneof the last member stays.
inline void FillAllFields(google::protobuf::Message& message, const Filling& with, int depth = 4) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& set = *message.GetReflection();
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    const bool many = field->is_repeated();
    const auto whole32 = static_cast<uint32_t>(with.whole);
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32: {
        const auto value = static_cast<int32_t>(whole32);
        many ? set.AddInt32(&message, field, value) : set.SetInt32(&message, field, value);
        break;
      }
      case FieldDescriptor::CPPTYPE_INT64: {
        const auto value = static_cast<int64_t>(with.whole);
        many ? set.AddInt64(&message, field, value) : set.SetInt64(&message, field, value);
        break;
      }
      case FieldDescriptor::CPPTYPE_UINT32:
        many ? set.AddUInt32(&message, field, whole32) : set.SetUInt32(&message, field, whole32);
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        many ? set.AddUInt64(&message, field, with.whole)
             : set.SetUInt64(&message, field, with.whole);
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        many ? set.AddDouble(&message, field, with.real)
             : set.SetDouble(&message, field, with.real);
        break;
      case FieldDescriptor::CPPTYPE_FLOAT: {
        const auto value = static_cast<float>(with.real);
        many ? set.AddFloat(&message, field, value) : set.SetFloat(&message, field, value);
        break;
      }
      case FieldDescriptor::CPPTYPE_BOOL:
        many ? set.AddBool(&message, field, with.whole != 0)
             : set.SetBool(&message, field, with.whole != 0);
        break;
      case FieldDescriptor::CPPTYPE_ENUM: {
        const auto value = static_cast<int>(whole32);
        many ? set.AddEnumValue(&message, field, value) : set.SetEnumValue(&message, field, value);
        break;
      }
      case FieldDescriptor::CPPTYPE_STRING:
        many ? set.AddString(&message, field, with.text)
             : set.SetString(&message, field, with.text);
        break;
      case FieldDescriptor::CPPTYPE_MESSAGE:
        if (depth == 0) break;
        FillAllFields(
            many ? *set.AddMessage(&message, field) : *set.MutableMessage(&message, field), with,
            depth - 1);
        break;
    }
  }
}

}  // namespace longhaul::testing
