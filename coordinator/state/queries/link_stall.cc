#include "coordinator/state/queries/link_stall.h"

#include <algorithm>
#include <utility>

namespace longhaul::coordinator {
namespace {

double RateAt(std::span<const double> rates, size_t stage) {
  return stage < rates.size() ? rates[stage] : 0;
}

// Adds what `bits_per_second` are of `rate`.
void AddUse(std::optional<double>& use, double bits_per_second, double rate) {
  if (rate > 0) use = use.value_or(0) + bits_per_second / rate;
}

}  // namespace

std::vector<InterfaceUse> UseOfInterfaces(size_t stages, std::span<const DirectionInUse> directions,
                                          std::span<const double> egress_rates,
                                          std::span<const double> ingress_rates) {
  std::vector<InterfaceUse> interfaces(stages);
  for (const DirectionInUse& direction : directions) {
    if (!(direction.sender->seconds() > 0)) continue;
    const double rate =
        8.0 * static_cast<double>(direction.use->link_bytes_sent()) / direction.sender->seconds();
    AddUse(interfaces[direction.from].egress, rate, RateAt(egress_rates, direction.from));
    AddUse(interfaces[direction.to].ingress, rate, RateAt(ingress_rates, direction.to));
  }
  return interfaces;
}

std::string_view StallOf(const DirectionInUse& direction,
                         std::span<const InterfaceUse> interfaces) {
  const v1::StepReport& sender = *direction.sender;
  if (!(sender.seconds() > 0)) return "";
  // Frames wait for credits while there is something to send.
  const double credits = direction.use->credit_wait_seconds();
  const double sending = direction.use->send_busy_seconds() - credits;
  const double idle = sender.seconds() - direction.use->send_busy_seconds();
  if (credits > std::max(sending, idle)) return "credits";
  if (sending >= idle) {
    const double egress = interfaces[direction.from].egress.value_or(0);
    const double ingress = interfaces[direction.to].ingress.value_or(0);
    return ingress > egress ? "ingress" : "egress";
  }
  const std::pair<double, std::string_view> causes[] = {
      {sender.forward_seconds() + sender.backward_seconds() + sender.optimizer_seconds(),
       "compute"},
      {sender.codec_wait_seconds(), "codec"},
      {sender.wait_input_seconds() + sender.wait_gradient_seconds(), "input"}};
  return std::max_element(
             std::begin(causes), std::end(causes),
             [](const auto& one, const auto& other) { return one.first < other.first; })
      ->second;
}

}  // namespace longhaul::coordinator
