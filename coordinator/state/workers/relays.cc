// Relays, which carry links between workers that do not reach each other, and the tickets for that.
#include <algorithm>

#include "coordinator/state/workers/worker_links.h"
#include "transport/relay/ticket.h"

namespace longhaul::coordinator {

namespace {

// A ticket also ends with its assignment (planning/relay_scopes.h). An epoch rarely trains longer
// without a link that opens anew. Where it does, the run recovers.
constexpr uint64_t kTicketSeconds = uint64_t{7} * 24 * 3600;

bool Carries(const v1::Hello& hello) {
  return !hello.relay().address().empty() && hello.relay().secret().size() == relay::kSecretBytes;
}

}  // namespace

std::string WorkerLinks::ScopeOf(std::string_view link_secret, std::string_view tag) {
  return relay::ScopeOf(link_secret, tag);
}

bool WorkerLinks::HasRelay(const Worker& worker) {
  return Carries(worker.hello);
}

std::vector<Relay> WorkerLinks::RelaysNow() const {
  std::vector<Relay> relays;
  if (ledger_.options().relay) relays.push_back(ledger_.options().relay->relay);
  for (const Worker* worker : ledger_.connected()) {
    if (Carries(worker->hello)) {
      relays.push_back({.worker = worker->id, .name = worker->hello.name()});
    }
  }
  return relays;
}

std::optional<RelayOffer> WorkerLinks::OfferOf(const Relay& relay) const {
  if (relay.worker.value().empty()) return ledger_.options().relay;
  const Worker* worker = ledger_.FindWorker(relay.worker);
  if (worker == nullptr || !worker->session || !Carries(worker->hello)) return std::nullopt;
  return RelayOffer{.relay = relay,
                    .address = worker->hello.relay().address(),
                    .secret = worker->hello.relay().secret()};
}

bool WorkerLinks::HasLostItsRelays(const Edge& edge) const {
  return !edge.relays.empty() && std::ranges::none_of(edge.relays, [&](const Relay& relay) {
    return OfferOf(relay).has_value();
  });
}

std::vector<std::string> WorkerLinks::WaysThrough(const std::vector<Relay>& relays,
                                                  std::string_view link_secret,
                                                  std::string_view tag,
                                                  std::string_view link) const {
  std::vector<std::string> ways;
  if (relays.empty()) return ways;
  const std::string name = relay::NameOf(link_secret, tag, link);
  const uint64_t until_s = static_cast<uint64_t>(ledger_.unix_ms() / 1000) + kTicketSeconds;
  for (const Relay& relay : relays) {
    const std::optional<RelayOffer> offer = OfferOf(relay);
    if (!offer) continue;
    ways.push_back(relay::ToString(
        {.address = offer->address, .ticket = relay::MakeTicket(offer->secret, name, until_s)}));
  }
  return ways;
}

std::vector<v1::RelayStatus> WorkerLinks::Relays() const {
  std::vector<v1::RelayStatus> relays;
  for (const Relay& relay : RelaysNow()) {
    v1::RelayStatus& one = relays.emplace_back();
    one.set_name(relay.name);
    one.set_address(OfferOf(relay)->address);
    uint32_t edges = 0;
    for (const Run* run : ledger_.Active()) {
      if (!IsActive(run->record.state) || !run->record.plan) continue;
      edges += static_cast<uint32_t>(
          std::ranges::count_if(run->assignment().edges, [&](const Edge& edge) {
            return !edge.relays.empty() && edge.relays.front().worker == relay.worker;
          }));
    }
    one.set_edges(edges);
  }
  return relays;
}

}  // namespace longhaul::coordinator
