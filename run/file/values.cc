#include "run/file/values.h"

#include <fmt/ranges.h>

namespace longhaul::config {

std::string RealSchema(const RealRange& range) {
  return fmt::format(R"("type": "number", "{}": {}, "{}": {})",
                     range.above_least ? "exclusiveMinimum" : "minimum", range.least,
                     range.below_most ? "exclusiveMaximum" : "maximum", range.most);
}

std::string WordsSchema(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) quoted.push_back(Quote(word));
  return fmt::format(R"("enum": [{}])", fmt::join(quoted, ", "));
}

}  // namespace longhaul::config
