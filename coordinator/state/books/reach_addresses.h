// What workers found when they dialled each other's addresses. Each address that no worker reaches
// is reported once.
//
// Pure data; not thread-safe.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "coordinator/state/books/reach_checks.h"

namespace longhaul::coordinator {

class ReachAddresses {
 public:
  // Takes the result of one dial. `problem`: why the address was not reached; empty: it was.
  void Note(const ReachKey& key, const std::string& address, const std::string& problem);
  // Drops all that is known about the worker's addresses.
  void Forget(const WorkerId& worker);
  // Drops the failed dials of `from` to addresses of `to`.
  void ForgetDials(const WorkerId& from, const WorkerId& to);

  struct Unreached {
    std::string address;
    std::vector<WorkerId> tried_by;
    std::string problem;  // of the last dial
  };
  // Returns the worker's addresses over this transport that some worker dialled and no worker
  // reached. Leaves out addresses that were returned before.
  std::vector<Unreached> TakeUnreached(const WorkerId& worker, const std::string& transport);

 private:
  struct Key {
    WorkerId worker;
    std::string transport;
    std::string address;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Findings {
    bool is_reached = false;   // by some worker
    bool is_reported = false;  // as unreached
    // Workers that dialled the address without success. Empty once `is_reached` or `is_reported`.
    std::set<WorkerId> tried_by;
    std::string problem;
  };

  std::map<Key, Findings> findings_;
};

}  // namespace longhaul::coordinator
