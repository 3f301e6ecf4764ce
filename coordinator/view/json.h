// Prints messages as JSON for `--json`: field names as in the .proto files, every field present,
// numbers as numbers (doubles with all digits; null if not finite).
#pragma once

#include <google/protobuf/message.h>

#include <string>

namespace longhaul {

// On one line, or indented.
std::string ToJson(const google::protobuf::Message& message, bool indented);

}  // namespace longhaul
