// Any bytes as requests to the dashboard, over real connections. The server answers or hangs up,
// and answers a proper request afterwards.
#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "base/address.h"
#include "base/fuzz/target.h"
#include "coordinator/http/dashboard_server.h"
#include "tests/fuzz/local_peer.h"
#include "tests/unit/coordinator/http/fake_changes.h"
#include "tests/unit/coordinator/http/fake_source.h"

namespace longhaul::coordinator {
namespace {

// One server for all inputs, as a coordinator has.
struct FuzzedDashboard {
  FuzzedDashboard() {
    source.AddStep(2.5);
    server =
        DashboardServer::Start({.listen = "127.0.0.1:0", .reports = "/nonexistent", .version = "1"},
                               &source, &changes)
            .value();
    port = ParseHostPort(server->address())->port;
  }
  FakeSource source;
  FakeChanges changes;
  std::unique_ptr<DashboardServer> server;
  uint16_t port = 0;
};

std::string AnswerTo(uint16_t port, std::string_view request) {
  constexpr size_t kEnough = 200'000;
  constexpr int kSilenceMs = 20'000;  // a server that neither answers nor hangs up has hung
  const UniqueFd connection = fuzz::ConnectLocally(port);
  fuzz::SendAll(connection.get(), request);
  ::shutdown(connection.get(), SHUT_WR);
  // A stream of news goes on: its first frame is enough.
  const bool streams = request.find("/api/live") != std::string_view::npos;
  return fuzz::ReadUntilEnd(connection.get(), streams ? 1 : kEnough, kSilenceMs);
}

}  // namespace
}  // namespace longhaul::coordinator

LH_FUZZ_TARGET(dashboard_requests) {
  using namespace longhaul::coordinator;  // NOLINT(google-build-using-namespace)
  static FuzzedDashboard dashboard;
  static uint64_t inputs = 0;
  const std::string_view request(reinterpret_cast<const char*>(data), size);
  const std::string answer = AnswerTo(dashboard.port, request);
  // Only answers and news leave it: no page of another origin, nothing that was not asked for.
  if (!answer.empty() && !answer.starts_with("HTTP/1.")) std::abort();
  if (++inputs % 64 == 0) {
    const std::string proper =
        AnswerTo(dashboard.port,
                 "GET /api/overview HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    if (!proper.starts_with("HTTP/1.1 200")) std::abort();
  }
  return answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.1 206");
}
