#include "proto/witness/rules.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "base/overloaded.h"

namespace longhaul::witness {
namespace {

Decision Refused(std::string why) {
  return {.granted = false, .why = std::move(why)};
}

bool IsLeader(const Record& record, uint64_t term, const Tenure& tenure) {
  return record.term == term && record.tenure == tenure;
}

Decision NotIntroduced() {
  return Refused("this witness has not been introduced to the coordinators yet");
}

Decision DecideElect(const Elect& elect, bool leader_is_heard, Record* record) {
  if (record->in_sync.empty()) return NotIntroduced();
  if (IsLeader(*record, elect.term, elect.tenure)) return {.granted = true};
  if (elect.term <= record->term) {
    return Refused(
        fmt::format("the witness has elected the coordinator {} with term {}, and was "
                    "asked for term {}",
                    record->seat, record->term, elect.term));
  }
  const auto in_sync = [record](const std::string& seat) {
    return std::ranges::find(record->in_sync, seat) != record->in_sync.end();
  };
  // The voter has compared both histories, and this seat lacks nothing that the voter has.
  if (!in_sync(elect.seat) && !in_sync(elect.voter)) {
    return Refused(fmt::format("the coordinator {} may lack changes that {} has stored", elect.seat,
                               record->seat));
  }
  if (elect.number < record->seen) {
    return Refused(fmt::format(
        "the records of the coordinator {} end at change {}, and the witness has heard of change "
        "{}: an older copy of them was put back",
        elect.seat, elect.number, record->seen));
  }
  const bool leader_agrees = elect.seat == record->seat || elect.voter == record->seat;
  if (leader_is_heard && !leader_agrees) {
    return Refused(fmt::format("the witness hears the coordinator {}, which leads", record->seat));
  }
  record->term = elect.term;
  record->tenure = elect.tenure;
  record->seat = elect.seat;
  record->ask = 0;
  if (!elect.voter.empty()) record->in_sync = {elect.seat};
  return {.granted = true};
}

Decision DecideSet(const SetInSync& set, Record* record) {
  if (!IsLeader(*record, set.term, set.tenure)) {
    return Refused(fmt::format("the coordinator {} leads with term {}, and one of term {} asked",
                               record->seat, record->term, set.term));
  }
  if (std::ranges::find(set.in_sync, record->seat) == set.in_sync.end()) {
    return Refused("a leader has every change, so it is always in sync");
  }
  if (set.ask < record->ask || (set.ask == record->ask && set.in_sync != record->in_sync)) {
    return Refused(fmt::format("request {} came behind request {}", set.ask, record->ask));
  }
  record->in_sync = set.in_sync;
  record->ask = set.ask;
  return {.granted = true};
}

Decision DecideBeat(const Beat& beat, Record* record) {
  if (record->in_sync.empty()) return NotIntroduced();
  if (!IsLeader(*record, beat.term, beat.tenure)) {
    return Refused(fmt::format("the witness has elected the coordinator {} with term {}",
                               record->seat, record->term));
  }
  record->seen = std::max(record->seen, beat.number);
  return {.granted = true};
}

Decision DecideIntroduce(const Introduce& introduce, Record* record) {
  const Record& given = introduce.record;
  if (!record->in_sync.empty()) {
    return Refused("this witness has been introduced already; a new one needs an empty directory");
  }
  if (given.in_sync.empty() || given.term == 0) {
    return Refused("expected a term and the seats that are in sync");
  }
  const std::string id = record->id;
  *record = given;
  record->id = id;
  return {.granted = true};
}

}  // namespace

Decision Decide(const Request& request, bool leader_is_heard, Record* record) {
  return std::visit(
      Overloaded{
          [&](const Elect& elect) { return DecideElect(elect, leader_is_heard, record); },
          [&](const SetInSync& set) { return DecideSet(set, record); },
          [&](const Beat& beat) { return DecideBeat(beat, record); },
          [&](const Introduce& introduce) { return DecideIntroduce(introduce, record); },
      },
      request);
}

std::string ToJson(const Record& record) {
  nlohmann::ordered_json json;
  json["id"] = record.id;
  json["term"] = record.term;
  json["tenure"] = absl::BytesToHexString(record.tenure.value());
  json["seat"] = record.seat;
  json["in_sync"] = record.in_sync;
  json["ask"] = record.ask;
  json["seen"] = record.seen;
  return json.dump(2) + "\n";
}

StatusOr<Record> ParseRecord(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::DataLossError("it is not a JSON object");
  Record record;
  std::string tenure;
  try {
    record.id = json.at("id").get<std::string>();
    record.term = json.at("term").get<uint64_t>();
    tenure = json.at("tenure").get<std::string>();
    record.seat = json.at("seat").get<std::string>();
    record.in_sync = json.at("in_sync").get<std::vector<std::string>>();
    record.ask = json.at("ask").get<uint64_t>();
    record.seen = json.at("seen").get<uint64_t>();
  } catch (const nlohmann::json::exception& error) {
    return absl::DataLossError(error.what());
  }
  if (tenure.size() % 2 != 0 || !std::ranges::all_of(tenure, absl::ascii_isxdigit)) {
    return DataLoss("expected a tenure of hexadecimal digits, got '{}'", tenure);
  }
  record.tenure = Tenure(absl::HexStringToBytes(tenure));
  if (record.id.empty()) return absl::DataLossError("the witness's id is missing");
  if (!std::ranges::is_sorted(record.in_sync)) {
    return absl::DataLossError("the seats in sync are not in ascending order");
  }
  return record;
}

}  // namespace longhaul::witness
