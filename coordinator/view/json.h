// Prints messages as JSON for `--json`. Fields have the names that the .proto files give them.
// Every field is present; an optional one that is not set is null. All numbers, also those of 64
// bits, are JSON numbers. Doubles have all digits, and are null if they are not finite.
#pragma once

#include <google/protobuf/message.h>

#include <string>

namespace longhaul {

// Returns the message on one line, or indented by two spaces.
std::string ToJson(const google::protobuf::Message& message, bool indented);

}  // namespace longhaul
