// Limits and identities of a coordinator. Plain data.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "coordinator/state/books/health_book.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// A relay, which carries links between workers that cannot reach each other.
struct RelayOffer {
  Relay relay;
  std::string address;  // as in transport/relay/ticket.h
  std::string secret;
};

struct StateOptions {
  absl::Duration heartbeat_interval = absl::Seconds(1);
  // A worker without a run that is silent for this long loses its session. The run file has the
  // limit for workers with a run. A closed stream ends the session at once.
  absl::Duration session_timeout = absl::Seconds(10);
  // How long workers may take to time their layers.
  absl::Duration measure_timeout = absl::Seconds(120);
  // How long stages may take to become ready: to fetch data, build the model and open links.
  absl::Duration ready_timeout = absl::Minutes(30);
  // How long two neighbours may measure their link. After that the plan is made without the rate of
  // this link.
  absl::Duration probe_limit = absl::Seconds(10);
  // For plans that choose their workers among candidates. Before the first plan, the candidates'
  // round trips are measured for at most this long, and then their goodput for at most this long.
  // Links that are not measured by then are estimated.
  absl::Duration survey_limit = absl::Seconds(30);
  // How long a worker may try to reach another one.
  absl::Duration reach_limit = absl::Seconds(5);
  // A running run that makes no progress for this long is interrupted, if no link is in trouble and
  // every worker is connected. The limit is longer if 20 median steps take longer. Before the first
  // step of an epoch, predicted steps count and the limit is ten times as long. Workers notice
  // their own hung threads earlier.
  absl::Duration progress_timeout = absl::Seconds(120);
  // When runs leave out a worker that was lost again and again.
  HealthOptions health;
  // The coordinator's own relay; nullopt: it has none.
  std::optional<RelayOffer> relay;
  // Random, and new in each process. Workers try whether they reach each other over links whose
  // secrets are derived from it.
  std::string reach_secret;
  std::string version;
};

}  // namespace longhaul::coordinator
