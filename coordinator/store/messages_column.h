// Stores several protobuf messages in one column, each after its length. Internal to
// coordinator/store.
#pragma once

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/delimited_message_util.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace longhaul::coordinator {

// Returns the bytes of all messages, for Split.
template <class M>
std::string Join(const std::vector<M>& messages) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream out(&stream);
  for (const M& message : messages) {
    google::protobuf::util::SerializeDelimitedToCodedStream(message, &out);
  }
  out.Trim();
  return bytes;
}

// Appends the messages in `bytes` to `messages`. False: `bytes` has another format; messages before
// the fault are appended all the same.
template <class M>
bool Split(std::string_view bytes, std::vector<M>* messages) {
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream in(&stream);
  while (true) {
    M message;
    bool clean_end = false;
    if (!google::protobuf::util::ParseDelimitedFromCodedStream(&message, &in, &clean_end)) {
      return clean_end;
    }
    messages->push_back(std::move(message));
  }
}

}  // namespace longhaul::coordinator
