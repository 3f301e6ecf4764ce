#include "coordinator/state/planning/relay_scopes.h"

#include <set>
#include <utility>

#include "coordinator/state/workers/worker_links.h"

namespace longhaul::coordinator {

std::vector<std::string> RelayScopes::ScopesNow() const {
  std::set<std::string> scopes;
  const auto add = [&](const std::string& link_secret, const std::string& tag) {
    scopes.insert(WorkerLinks::ScopeOf(link_secret, tag));
  };
  for (const Run* run : ledger_.Active()) {
    if (HasStages(run->record.state)) add(run->record.link_secret, run->assignment().hash);
  }
  planning_.EachDraft([&](const Draft& draft) {
    add(draft.link_secret, ledger_.DraftTag(draft.run, draft.epoch));
  });
  for (const auto& [id, epoch] : shards_.book().Transfers()) {
    const auto run = ledger_.runs().find(id);
    if (run != ledger_.runs().end()) {
      add(run->second.record.link_secret, ledger_.DraftTag(id, epoch));
    }
  }
  return {scopes.begin(), scopes.end()};
}

void RelayScopes::Advance() {
  std::vector<const Worker*> relays;
  for (const Worker* worker : ledger_.connected()) {
    if (WorkerLinks::HasRelay(*worker)) relays.push_back(worker);
  }
  if (relays.empty() && !ledger_.options().relay) {
    told_.clear();
    return;
  }
  const std::vector<std::string> scopes = ScopesNow();
  if (ledger_.options().relay && told_own_ != scopes) {
    told_own_ = scopes;
    ledger_.DoFirst(command::ServeScopes{scopes});
  }
  std::map<SessionId, std::vector<std::string>> told;
  for (const Worker* worker : relays) {
    const SessionId session = *worker->session;
    const auto before = told_.find(session);
    const bool is_new = before == told_.end();
    if (is_new || before->second != scopes) {
      v1::WorkerCommand command;
      v1::ServeScopes& serve = *command.mutable_serve_scopes();
      for (const std::string& scope : scopes) serve.add_scopes(scope);
      command::ToWorker send{session, std::move(command)};
      // A new session begins with its welcome.
      if (is_new) {
        ledger_.Do(std::move(send));
      } else {
        ledger_.DoFirst(std::move(send));
      }
    }
    told.emplace(session, scopes);
  }
  told_ = std::move(told);
}

}  // namespace longhaul::coordinator
