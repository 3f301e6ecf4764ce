#include "coordinator/standby/leadership.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/log.h"

namespace longhaul::coordinator {
namespace {

constexpr uint64_t kMostBytes = 64 << 10;

constexpr std::array<std::pair<LeaderRole, std::string_view>, 3> kRoles = {{
    {LeaderRole::kCoordinator, "coordinator"},
    {LeaderRole::kStandby, "standby"},
    {LeaderRole::kFenced, "fenced"},
}};

std::string PathIn(const std::string& state_dir) {
  return state_dir + "/leadership.json";
}

// For sentences about a fenced one.
std::string NameOf(const LeadershipRecord& fenced) {
  return fenced.successor.empty() ? fmt::format("the one of term {}", fenced.term)
                                  : fmt::format("{} (term {})", fenced.successor, fenced.term);
}

}  // namespace

std::string ToJson(const LeadershipRecord& record) {
  const auto role = std::ranges::find(kRoles, record.role, &decltype(kRoles)::value_type::first);
  nlohmann::ordered_json json;
  json["role"] = std::string(role->second);
  json["term"] = record.term;
  if (!record.standby.empty()) json["standby"] = record.standby;
  if (record.standby_is_stale) json["standby_is_stale"] = true;
  if (!record.predecessor.empty()) json["predecessor"] = record.predecessor;
  if (!record.successor.empty()) json["successor"] = record.successor;
  if (record.role == LeaderRole::kStandby) json["whole"] = record.whole;
  return json.dump(2) + "\n";
}

StatusOr<LeadershipRecord> ParseLeadership(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::DataLossError("it is not a JSON object");
  LeadershipRecord record;
  std::string role;
  try {
    role = json.at("role").get<std::string>();
    record.term = json.at("term").get<uint64_t>();
    record.standby = json.value("standby", "");
    record.standby_is_stale = json.value("standby_is_stale", false);
    record.predecessor = json.value("predecessor", "");
    record.successor = json.value("successor", "");
    record.whole = json.value("whole", false);
  } catch (const nlohmann::json::exception& error) {
    return absl::DataLossError(error.what());
  }
  const auto known = std::ranges::find(kRoles, role, &decltype(kRoles)::value_type::second);
  if (known == kRoles.end()) {
    return DataLoss("expected the role coordinator, standby or fenced, got '{}'", role);
  }
  record.role = known->first;
  if (record.term == 0) return absl::DataLossError("expected a term of 1 or more, got 0");
  return record;
}

StatusOr<LeadershipRecord> ReadLeadership(const std::string& state_dir) {
  const std::string path = PathIn(state_dir);
  const StatusOr<std::string> text = ReadFile(path, kMostBytes);
  if (absl::IsNotFound(text.status())) return LeadershipRecord();
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
  // A takeover adds one to a term, and none has happened each second since 1970.
  return std::max(known + 1, static_cast<uint64_t>(std::max<int64_t>(0, absl::ToUnixSeconds(now))));
}

StatusOr<LeadershipRecord> BeginToLead(const LeadershipRecord& record, Claim claim,
                                       absl::Time now) {
  const bool forced = claim == Claim::kForce;
  if (record.role == LeaderRole::kCoordinator &&
      (!forced || record.standby.empty() || record.standby_is_stale)) {
    return record;
  }
  if (claim == Claim::kOwn && record.role == LeaderRole::kFenced) {
    return FailedPrecondition(
        "another coordinator has taken over: {}. The records here are older. Start this one with "
        "--standby HOST:PORT of that one, and it follows it; --force lets it serve with what it "
        "has, when the other is gone for good",
        NameOf(record));
  }
  if (claim == Claim::kOwn) {
    return FailedPrecondition(
        "this is the state directory of a standby of {0}{1}. Start it with --standby {0}, and it "
        "follows that one; --force takes over from it now",
        record.predecessor, record.whole ? "" : ", which had not all that its coordinator has");
  }
  LeadershipRecord leads{.term = forced ? TermOfForce(record.term, now) : record.term + 1};
  // Who is forced aside is told, too.
  leads.predecessor = record.role == LeaderRole::kStandby  ? record.predecessor
                      : record.role == LeaderRole::kFenced ? record.successor
                                                           : record.standby;
  return leads;
}

LeadershipRecord Leadership::record() const {
  const std::lock_guard lock(mutex_);
  return record_;
}

void Leadership::Yield(uint64_t newer_term, const std::string& successor) {
  const std::lock_guard lock(mutex_);
  if (newer_term <= record_.term) return;
  record_ = {.role = LeaderRole::kFenced, .term = newer_term, .successor = successor};
  failure_ = FailedPrecondition(
      "another coordinator has taken over: {}; this one, of term {}, ends. Start it with --standby "
      "HOST:PORT of that one, and it follows it",
      NameOf(record_), term_);
  Write();
}

Status Leadership::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Leadership::NoteStandby(const std::string& address) {
  const std::lock_guard lock(mutex_);
  standby_is_there_ = true;
  standby_left_.reset();
  if (record_.role != LeaderRole::kCoordinator) return;
  if (record_.standby == address && !record_.standby_is_stale) return;
  record_.standby = address;
  record_.standby_is_stale = false;
  if (record_.predecessor == address) record_.predecessor.clear();  // it knows
  Write();
}

void Leadership::NoteStandbyGone() {
  const std::lock_guard lock(mutex_);
  standby_is_there_ = false;
  standby_left_ = Now();
}

void Leadership::NoteStandbyStale() {
  const std::lock_guard lock(mutex_);
  standby_left_.reset();
  if (record_.role != LeaderRole::kCoordinator || record_.standby.empty()) return;
  record_.standby_is_stale = true;
  Write();
}

absl::Duration Leadership::standby_away() const {
  const std::lock_guard lock(mutex_);
  return standby_left_ ? Now() - *standby_left_ : absl::ZeroDuration();
}

std::optional<bool> Leadership::has_standby() const {
  const std::lock_guard lock(mutex_);
  if (record_.standby.empty()) return std::nullopt;
  return standby_is_there_;
}

void Leadership::ForgetPredecessor() {
  const std::lock_guard lock(mutex_);
  if (record_.role != LeaderRole::kCoordinator || record_.predecessor.empty()) return;
  record_.predecessor.clear();
  Write();
}

// What cannot be written is known to this process at least.
void Leadership::Write() {
  if (const Status status = WriteLeadership(state_dir_, record_); !status.ok()) {
    LogError("{}", Message(status));
  }
}

}  // namespace longhaul::coordinator
