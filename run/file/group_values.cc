// The keys that say how a group compresses (custom_values.h).
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "run/file/custom_values.h"
#include "run/file/group_collective.h"
#include "run/file/values.h"

namespace longhaul::config {
namespace {

template <class At>
Value Collective(At at) {
  const auto make = [](std::string name, GroupCompression* target) {
    const auto read = [target](Reader& reader, const YAML::Node& node, const std::string& path,
                               const std::string& expected) {
      const auto text = ReadScalar(reader, node, path, expected);
      if (!text) return;
      std::vector<std::string> problems;
      const GroupCompression compression = ReadGroupCompression(*text, &problems);
      for (const std::string& problem : problems)
        reader.Fail(node, absl::StrCat(path, ": ", problem));
      if (problems.empty()) *target = compression;
    };
    return Custom(std::move(name), "one of none, taco, zip, auto; taco with keys behind a colon",
                  read);
  };
  return Bound(
      at, make,
      [](const GroupCompression& compression) {
        const std::string text = ToString(compression);
        return text.find(':') == std::string::npos ? text : Quote(text);
      },
      R"("anyOf": [{"enum": ["none", "taco", "zip", "auto"]}, )"
      R"({"type": "string", "pattern": "^taco:"}])");
}

}  // namespace

Value Forward() {
  return Collective(LH_AT(group.forward));
}

Value Backward() {
  return Collective(LH_AT(group.backward));
}

// `collective: zip` says `forward` and `backward` at once.
Value BothWays() {
  Value value = Forward();
  value.field = [read_one = value.field](const std::string& name, Draft* draft) {
    Field field = read_one(name, draft);
    field.read = [draft, read = field.read](Reader& reader, const YAML::Node& node,
                                            const std::string& path) {
      read(reader, node, path);
      draft->spec.group.backward = draft->spec.group.forward;
    };
    return field;
  };
  value.text = nullptr;
  value.copy = nullptr;
  return value;
}

}  // namespace longhaul::config
