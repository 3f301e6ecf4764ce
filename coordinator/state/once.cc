#include "coordinator/state/once.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message.h>

#include <memory>

#include "base/hash.h"

namespace longhaul::coordinator {

std::string Sha256WithoutId(const google::protobuf::Message& request) {
  const std::unique_ptr<google::protobuf::Message> asked(request.New());
  asked->CopyFrom(request);
  if (const auto* id = asked->GetDescriptor()->FindFieldByName("request_id")) {
    asked->GetReflection()->ClearField(asked.get(), id);
  }
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    asked->SerializeToCodedStream(&coded);
  }
  return Sha256Hex(bytes);
}

}  // namespace longhaul::coordinator
