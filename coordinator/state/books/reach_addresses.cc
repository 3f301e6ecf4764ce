#include "coordinator/state/books/reach_addresses.h"

#include <utility>

namespace longhaul::coordinator {

void ReachAddresses::Note(const ReachKey& key, const std::string& address,
                          const std::string& problem) {
  Findings& findings = findings_[{key.to, key.transport, address}];
  if (problem.empty()) {
    findings.is_reached = true;
    findings.tried_by.clear();
  } else if (!findings.is_reached && !findings.is_reported) {
    findings.tried_by.insert(key.from);
    findings.problem = problem;
  }
}

void ReachAddresses::Forget(const WorkerId& worker) {
  auto it = findings_.lower_bound({worker, "", ""});
  while (it != findings_.end() && it->first.worker == worker) it = findings_.erase(it);
}

void ReachAddresses::ForgetDials(const WorkerId& from, const WorkerId& to) {
  for (auto it = findings_.lower_bound({to, "", ""});
       it != findings_.end() && it->first.worker == to; ++it) {
    it->second.tried_by.erase(from);
  }
}

std::vector<ReachAddresses::Unreached> ReachAddresses::TakeUnreached(const WorkerId& worker,
                                                                     const std::string& transport) {
  std::vector<Unreached> unreached;
  for (auto it = findings_.lower_bound({worker, transport, ""});
       it != findings_.end() && it->first.worker == worker && it->first.transport == transport;
       ++it) {
    Findings& findings = it->second;
    if (findings.is_reached || findings.is_reported || findings.tried_by.empty()) continue;
    findings.is_reported = true;
    const std::set<WorkerId> tried_by = std::exchange(findings.tried_by, {});
    unreached.push_back({it->first.address, {tried_by.begin(), tried_by.end()}, findings.problem});
  }
  return unreached;
}

}  // namespace longhaul::coordinator
