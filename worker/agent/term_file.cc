#include "worker/agent/term_file.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "base/file.h"

namespace longhaul::worker {
namespace {

constexpr uint64_t kMostBytes = 4096;
constexpr absl::Duration kBetweenWrites = absl::Seconds(10);
constexpr size_t kMostTenureBytes = 64;

std::string ToJson(const Obeyed& obeyed) {
  nlohmann::ordered_json json;
  json["term"] = obeyed.term;
  json["tenure"] = absl::BytesToHexString(obeyed.tenure);
  json["address"] = obeyed.address;
  json["change"] = obeyed.change;
  return json.dump() + "\n";
}

// Hexadecimal digits, two for each byte.
bool IsHex(const std::string& text) {
  return text.size() % 2 == 0 && text.size() <= 2 * kMostTenureBytes &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

StatusOr<Obeyed> Parse(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::DataLossError("it is not a JSON object");
  Obeyed obeyed;
  try {
    obeyed.term = json.at("term").get<uint64_t>();
    obeyed.tenure = json.at("tenure").get<std::string>();
    obeyed.address = json.at("address").get<std::string>();
    obeyed.change = json.at("change").get<uint64_t>();
  } catch (const nlohmann::json::exception& error) {
    return absl::DataLossError(error.what());
  }
  if (!IsHex(obeyed.tenure)) {
    return DataLoss("expected a tenure of hexadecimal digits, got '{}'", obeyed.tenure);
  }
  obeyed.tenure = absl::HexStringToBytes(obeyed.tenure);
  return obeyed;
}

}  // namespace

StatusOr<TermFile> TermFile::Open(const std::string& state_dir) {
  const std::string path = state_dir + "/term";
  const StatusOr<std::string> text = ReadFile(path, kMostBytes);
  if (absl::IsNotFound(text.status())) return TermFile(path, {});
  LH_RETURN_IF_ERROR(text.status());
  StatusOr<Obeyed> obeyed = Parse(*text);
  if (obeyed.ok()) return TermFile(path, *std::move(obeyed));
  return FailedPrecondition(
      "{} is damaged ({}); delete it where only one coordinator serves, and else put back a copy "
      "of "
      "it: without it this worker obeys a coordinator that was replaced",
      path, Message(obeyed.status()));
}

Status TermFile::Keep(Obeyed obeyed, MonoTime now) {
  const bool other = obeyed.term != obeyed_.term || obeyed.tenure != obeyed_.tenure;
  const bool due = obeyed != stored_ && now - tried_ >= kBetweenWrites;
  if (!path_.empty() && (other || due)) {
    tried_ = now;
    const Status status = WriteFileAtomic(path_, ToJson(obeyed), 0600);
    if (status.ok()) {
      stored_ = obeyed;
    } else if (other) {
      return Annotate(status, "a worker obeys a new leader only once it is stored");
    }
  }
  obeyed_ = std::move(obeyed);
  return absl::OkStatus();
}

}  // namespace longhaul::worker
