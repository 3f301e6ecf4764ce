#include "coordinator/standby/leadership_record.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file.h"

namespace longhaul::coordinator {
namespace {

constexpr uint64_t kMostRecordBytes = 64 << 10;

constexpr std::array<std::pair<LeaderRole, std::string_view>, 3> kRoles = {{
    {LeaderRole::kCoordinator, "coordinator"},
    {LeaderRole::kStandby, "standby"},
    {LeaderRole::kFenced, "fenced"},
}};

std::string PathIn(const std::string& state_dir) {
  return state_dir + "/leadership.json";
}

}  // namespace

std::string ToJson(const LeadershipRecord& record) {
  const auto role = std::ranges::find(kRoles, record.role, &decltype(kRoles)::value_type::first);
  nlohmann::ordered_json json;
  json["role"] = std::string(role->second);
  json["term"] = record.seat.term;
  json["seat"] = record.seat.seat;
  json["in_sync"] = record.seat.in_sync;
  if (!record.seat.other.empty()) json["other"] = record.seat.other;
  if (record.seat.asked != 0) json["asked"] = record.seat.asked;
  if (!record.seat.voter.empty()) json["voter"] = record.seat.voter;
  if (!record.peer.empty()) json["peer"] = record.peer;
  return json.dump(2) + "\n";
}

StatusOr<LeadershipRecord> ParseLeadership(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::DataLossError("it is not a JSON object");
  LeadershipRecord record;
  std::string role;
  try {
    role = json.at("role").get<std::string>();
    record.seat.term = json.at("term").get<uint64_t>();
    record.seat.seat = json.value("seat", "");
    record.seat.other = json.value("other", "");
    record.seat.asked = json.value("asked", uint64_t{0});
    record.seat.voter = json.value("voter", "");
    record.seat.in_sync = json.value("in_sync", std::vector<std::string>());
    record.peer = json.value("peer", "");
    // Older versions used another name for each role.
    for (const char* name : {"standby", "predecessor", "successor"}) {
      if (record.peer.empty()) record.peer = json.value(name, "");
    }
  } catch (const nlohmann::json::exception& error) {
    return absl::DataLossError(error.what());
  }
  const auto known = std::ranges::find(kRoles, role, &decltype(kRoles)::value_type::second);
  if (known == kRoles.end()) {
    return DataLoss("expected the role coordinator, standby or fenced, got '{}'", role);
  }
  record.role = known->first;
  if (record.seat.term == 0) return absl::DataLossError("expected a term of 1 or more, got 0");
  if (!std::ranges::is_sorted(record.seat.in_sync)) {
    return absl::DataLossError("the seats in sync are not in ascending order");
  }
  if (record.seat.seat.empty()) {
    record.seat.seat = RandomUuid();
    record.seat.in_sync.clear();
    if (record.role == LeaderRole::kCoordinator) record.seat.in_sync = {record.seat.seat};
  }
  return record;
}

LeadershipRecord NewLeadership() {
  LeadershipRecord record;
  record.seat.seat = RandomUuid();
  record.seat.in_sync = {record.seat.seat};
  return record;
}

bool HasLeadership(const std::string& state_dir) {
  std::error_code error;
  return std::filesystem::exists(PathIn(state_dir), error);
}

StatusOr<LeadershipRecord> ReadLeadership(const std::string& state_dir) {
  const std::string path = PathIn(state_dir);
  const StatusOr<std::string> text = ReadFile(path, kMostRecordBytes);
  if (absl::IsNotFound(text.status())) return NewLeadership();
  LH_RETURN_IF_ERROR(text.status());
  StatusOr<LeadershipRecord> record = ParseLeadership(*text);
  if (record.ok()) return record;
  return DataLoss(
      "{} is damaged ({}); put a copy of it back, or delete it where no other "
      "coordinator has ever followed this one",
      path, Message(record.status()));
}

Status WriteLeadership(const std::string& state_dir, const LeadershipRecord& record) {
  return Annotate(WriteFileAtomic(PathIn(state_dir), ToJson(record), 0600), "state directory");
}

uint64_t TermOfForce(uint64_t known, absl::Time now) {
  // An election adds one to a term, and none has happened each second since 1970.
  return std::max(known + 1, static_cast<uint64_t>(std::max<int64_t>(0, absl::ToUnixSeconds(now))));
}

Tenure NewTenure() {
  return Tenure(RandomBytes(16));
}

}  // namespace longhaul::coordinator
