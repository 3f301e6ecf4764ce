// Prints messages as JSON for `--json`. Fields have their names of the .proto files, and every
// field is present: null if it is optional and not set. Numbers are numbers: doubles with all
// digits, or null if not finite.
#pragma once

#include <google/protobuf/message.h>

#include <string>

namespace longhaul {

// Returns the message on one line, or indented by two spaces.
std::string ToJson(const google::protobuf::Message& message, bool indented);

}  // namespace longhaul
