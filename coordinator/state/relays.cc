// Who carries links between workers that do not reach each other, and the tickets for that.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "coordinator/state/core.h"
#include "transport/relay/ticket.h"

namespace longhaul::coordinator {
namespace {

// Longer than an epoch trains without a link that has to open anew, as a rule. Else it recovers.
constexpr uint64_t kTicketSeconds = uint64_t{7} * 24 * 3600;

}  // namespace

std::vector<RelayOffer> Core::RelayOffers() const {
  std::vector<RelayOffer> offers;
  if (options_.relay) offers.push_back(*options_.relay);
  for (const Worker* worker : connected_) {
    const v1::RelayOffer& offer = worker->hello.relay();
    if (offer.address().empty() || offer.secret().size() != relay::kSecretBytes) continue;
    offers.push_back({.relay = {.worker = worker->id, .name = worker->hello.name()},
                      .address = offer.address(),
                      .secret = offer.secret()});
  }
  return offers;
}

void Core::AddRelays(CandidateWorker* worker) const {
  for (RelayOffer& offer : RelayOffers()) worker->relays.push_back(std::move(offer.relay));
}

std::vector<std::string> Core::WaysThrough(const std::vector<Relay>& relays,
                                           std::string_view link_secret,
                                           std::string_view link) const {
  std::vector<std::string> ways;
  if (relays.empty()) return ways;
  const std::string name = HmacSha256(link_secret, fmt::format("meeting of {}", link));
  const uint64_t until_s = static_cast<uint64_t>(unix_ms_ / 1000) + kTicketSeconds;
  const std::vector<RelayOffer> offers = RelayOffers();
  for (const Relay& relay : relays) {
    const auto offer = std::ranges::find(offers, relay.worker,
                                         [](const RelayOffer& one) { return one.relay.worker; });
    if (offer == offers.end()) continue;
    ways.push_back(relay::ToString(
        {.address = offer->address, .ticket = relay::MakeTicket(offer->secret, name, until_s)}));
  }
  return ways;
}

std::vector<v1::RelayStatus> Core::Relays() const {
  std::vector<v1::RelayStatus> relays;
  for (const RelayOffer& offer : RelayOffers()) {
    v1::RelayStatus& one = relays.emplace_back();
    one.set_name(offer.relay.name);
    one.set_address(offer.address);
    uint32_t edges = 0;
    for (const auto& [id, run] : runs_) {
      if (!IsActive(run.record.state) || !run.record.plan) continue;
      edges += static_cast<uint32_t>(
          std::ranges::count_if(run.assignment().edges, [&](const Edge& edge) {
            return !edge.relays.empty() && edge.relays.front().worker == offer.relay.worker;
          }));
    }
    one.set_edges(edges);
  }
  return relays;
}

}  // namespace longhaul::coordinator
