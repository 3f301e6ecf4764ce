// Reads JSON from a stream without building a tree of it, and without keeping texts: a text comes
// in pieces. For lists that may be hostile (list_names.h). Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul::coordinator {

// Gets the parts of a JSON text in their order. An error ends the reading.
class JsonParts {
 public:
  virtual ~JsonParts() = default;
  // An array or object begins, and ends.
  virtual Status OnBegin(bool array) = 0;
  virtual Status OnEnd() = 0;
  // The key of the next value of an object; at most kMostKeyBytes.
  virtual Status OnKey(std::string_view key) = 0;
  // The next part of a text that is a value, in UTF-8; the last part may be empty.
  virtual Status OnText(std::string_view part, bool last) = 0;
  // A number, true, false or null.
  virtual Status OnScalar() = 0;
};

struct JsonLimits {
  size_t depth = 16;  // arrays and objects within each other
  size_t values = 1'000'000;
};
inline constexpr size_t kMostKeyBytes = 4096;

// Reads one JSON value and the space around it. Numbers need not be well formed. kInvalidArgument:
// not JSON, or above a limit; the message names the place. Errors of `parts` are returned as they
// are.
Status ReadJson(std::istream& json, const JsonLimits& limits, JsonParts* parts);

}  // namespace longhaul::coordinator
