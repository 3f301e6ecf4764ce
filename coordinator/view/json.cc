#include "coordinator/view/json.h"

#include <google/protobuf/descriptor.h>

#include <nlohmann/json.hpp>

namespace longhaul {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Reflection;
using Json = nlohmann::ordered_json;

Json Convert(const google::protobuf::Message& message);

// `index` below 0: the field is not repeated.
template <class Single, class Repeated>
auto Get(const google::protobuf::Message& message, const FieldDescriptor* field, int index,
         Single single, Repeated repeated) {
  const Reflection* reflection = message.GetReflection();
  return index < 0 ? (reflection->*single)(message, field)
                   : (reflection->*repeated)(message, field, index);
}

Json Value(const google::protobuf::Message& message, const FieldDescriptor* field, int index) {
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return Get(message, field, index, &Reflection::GetInt32, &Reflection::GetRepeatedInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return Get(message, field, index, &Reflection::GetInt64, &Reflection::GetRepeatedInt64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return Get(message, field, index, &Reflection::GetUInt32, &Reflection::GetRepeatedUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return Get(message, field, index, &Reflection::GetUInt64, &Reflection::GetRepeatedUInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Get(message, field, index, &Reflection::GetDouble, &Reflection::GetRepeatedDouble);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return Get(message, field, index, &Reflection::GetFloat, &Reflection::GetRepeatedFloat);
    case FieldDescriptor::CPPTYPE_BOOL:
      return Get(message, field, index, &Reflection::GetBool, &Reflection::GetRepeatedBool);
    case FieldDescriptor::CPPTYPE_ENUM:
      return Get(message, field, index, &Reflection::GetEnumValue,
                 &Reflection::GetRepeatedEnumValue);
    case FieldDescriptor::CPPTYPE_STRING:
      return Get(message, field, index, &Reflection::GetString, &Reflection::GetRepeatedString);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
  }
  const Reflection* reflection = message.GetReflection();
  return Convert(index < 0 ? reflection->GetMessage(message, field)
                           : reflection->GetRepeatedMessage(message, field, index));
}

Json Convert(const google::protobuf::Message& message) {
  Json object = Json::object();
  const google::protobuf::Descriptor* type = message.GetDescriptor();
  const Reflection* reflection = message.GetReflection();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    if (field->is_repeated()) {
      Json list = Json::array();
      for (int k = 0; k < reflection->FieldSize(message, field); ++k) {
        list.push_back(Value(message, field, k));
      }
      object[field->name()] = std::move(list);
    } else if (field->has_presence() && !reflection->HasField(message, field)) {
      object[field->name()] = nullptr;
    } else {
      object[field->name()] = Value(message, field, -1);
    }
  }
  return object;
}

}  // namespace

std::string ToJson(const google::protobuf::Message& message, bool indented) {
  return Convert(message).dump(indented ? 2 : -1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace longhaul
