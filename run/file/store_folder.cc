// Checks of checkpoint.to.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "run/file/custom_values.h"

namespace longhaul::config {

namespace {

constexpr size_t kShownBytes = 400;

// Why the address is no folder of an object store, or "".
std::string FaultOfStoreFolder(std::string_view address) {
  constexpr size_t kLongestPrefix = 600;  // keys of S3 have at most 1,024 bytes
  std::string_view rest = address;
  if (!rest.starts_with("s3://") && !rest.starts_with("gs://")) {
    return "it does not begin with s3:// or gs://";
  }
  rest.remove_prefix(5);
  if (rest.size() > kLongestPrefix) {
    return fmt::format("it is longer than {} characters", kLongestPrefix);
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  // Some servers and tools read other names otherwise than they are written.
  for (size_t begin = 0; begin <= rest.size();) {
    const size_t end = std::min(rest.find('/', begin), rest.size());
    const std::string_view part = rest.substr(begin, end - begin);
    const bool is_plain = std::ranges::all_of(part, [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' ||
             c == '.' || c == '=';
    });
    if (part.empty()) return "it has an empty part";
    if (part == "." || part == ".." || !is_plain) {
      return fmt::format("'{}' has more than letters, digits and -_.=", part);
    }
    begin = end + 1;
  }
  return "";
}

}  // namespace

std::string CheckStoreFolder(std::string_view address) {
  const std::string fault = FaultOfStoreFolder(address);
  if (fault.empty()) return "";
  return fmt::format(
      "expected a folder of an object store such as s3://bucket/checkpoints, got '{}': {}",
      address.substr(0, kShownBytes), fault);
}

}  // namespace longhaul::config
