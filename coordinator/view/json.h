// Prints messages as JSON for `--json`: field names as in the .proto files, every field present,
// numbers as numbers (doubles with all digits; null if not finite).
#ifndef LONGHAUL_COORDINATOR_VIEW_JSON_H_
#define LONGHAUL_COORDINATOR_VIEW_JSON_H_

#include <google/protobuf/message.h>

#include <string>

namespace longhaul {

// On one line, or indented.
std::string ToJson(const google::protobuf::Message& message, bool indented);

}  // namespace longhaul

#endif  // LONGHAUL_COORDINATOR_VIEW_JSON_H_
