// What a witness decides. Two coordinators keep the same records, and a third party, the witness,
// has one small record that says which of them may lead. A leader needs two of the three, so two
// coordinators that do not hear each other never both lead. Pure.
//
// A seat is a state directory that may lead, and is named by its id. A seat in sync has every
// committed change. The witness elects only with a greater term than before, and only a seat in
// sync. It stores its record before it answers. None of this relies on a clock.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace longhaul::witness {

struct Record {
  std::string id;                    // the witness's own; made once
  uint64_t term = 0;                 // of the leader that was elected last; 0: nobody yet
  Tenure tenure;                     // of that leader's process
  std::string seat;                  // of that leader
  std::vector<std::string> in_sync;  // seats in sync, in ascending order; empty: not introduced yet
  uint64_t ask = 0;                  // number of the leader's newest SetInSync
  // Number of the newest committed change that a leader has named. A seat whose newest change is
  // older has lost records, for example because an old copy was put back.
  uint64_t seen = 0;

  friend bool operator==(const Record&, const Record&) = default;
};

// Asks to elect this process. `number`: of its newest change.
struct Elect {
  uint64_t term = 0;
  Tenure tenure;
  std::string seat;
  uint64_t number = 0;
  // The other seat, if that has elected this one: it has promised not to be elected before this one
  // says that it is in sync again. So this one alone is in sync. Empty: it has not.
  std::string voter;
};
// The leader names the seats in sync. `ask` grows with each change of the set within a tenure, so a
// late repetition of an older request changes nothing.
struct SetInSync {
  uint64_t term = 0;
  Tenure tenure;
  std::vector<std::string> in_sync;  // in ascending order
  uint64_t ask = 0;
};
// A leader says that it lives. `number`: of its newest committed change that is safe on disk.
struct Beat {
  uint64_t term = 0;
  Tenure tenure;
  std::string seat;
  uint64_t number = 0;
};
// Gives a new witness its first record, without `id`.
struct Introduce {
  Record record;
};
using Request = std::variant<Elect, SetInSync, Beat, Introduce>;

struct Decision {
  bool granted = false;
  std::string why;  // if not granted: a sentence for people
};

// Decides a request. If `record` has changed afterwards, store it before the answer. Every answer
// carries the record as it is then. `leader_is_heard`: the leader of the record was heard within
// the lease, so another seat has to wait. The latter is for calm; correctness does not need it.
Decision Decide(const Request& request, bool leader_is_heard, Record* record);

// witness.json. kDataLoss: the text is not a record; the message names the fault.
std::string ToJson(const Record& record);
StatusOr<Record> ParseRecord(std::string_view json);

}  // namespace longhaul::witness
