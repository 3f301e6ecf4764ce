// What a coordinator's state directory keeps of who leads: <state-dir>/leadership.json
// (docs/design/formats.md). Pure, except for reading and writing the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "base/status.h"
#include "coordinator/lead/seat.h"

namespace longhaul::coordinator {

enum class LeaderRole : uint8_t {
  kCoordinator,  // leads, or did so when it last ran
  kStandby,      // follows another coordinator, and has a copy of its records
  kFenced,       // led, and another coordinator leads now
};

struct LeadershipRecord {
  LeaderRole role = LeaderRole::kCoordinator;
  SeatRecord seat;   // of this directory
  std::string peer;  // host:port of the other coordinator; empty: none was ever there

  uint64_t term() const { return seat.term; }
  // Whether this coordinator leads at its start without asking anybody: it led, and nobody else has
  // all of its changes.
  bool leads_alone() const {
    return role == LeaderRole::kCoordinator && seat.in_sync.size() == 1 &&
           seat.in_sync.front() == seat.seat;
  }
  bool operator==(const LeadershipRecord&) const = default;
};

std::string ToJson(const LeadershipRecord& record);
// kDataLoss: the text is not a record; the message names the fault. A record of an older version
// has no seat: it gets a new one.
StatusOr<LeadershipRecord> ParseLeadership(std::string_view json);
// A coordinator that never ran: a new seat, which is alone.
LeadershipRecord NewLeadership();
bool HasLeadership(const std::string& state_dir);  // whether the file is there
// Read and write the file; writes are atomic. Without the file, ReadLeadership returns
// NewLeadership. Write a record with a new seat before its id is told to others. kDataLoss: the
// file is damaged. Other errors: the system's for a file that cannot be read or written.
StatusOr<LeadershipRecord> ReadLeadership(const std::string& state_dir);
Status WriteLeadership(const std::string& state_dir, const LeadershipRecord& record);

// Returns the term for a forced start. The records in the state directory may be old, so the term
// is above `known`, the term in these records, and at least the Unix time in seconds. An election
// only adds one to the term, so no worker can know a newer term than this one.
uint64_t TermOfForce(uint64_t known, absl::Time now);
// Returns 16 random bytes.
Tenure NewTenure();

}  // namespace longhaul::coordinator
