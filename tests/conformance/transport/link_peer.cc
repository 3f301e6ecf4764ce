// A process that dials a link and sends for ever, to be killed: see killed_peer_test.cc.
//   link_peer TRANSPORT <address>
#include <cstdio>
#include <string>
#include <thread>

#include "base/notification.h"
#include "run/kinds/transports.h"
#include "transport/p2p/registry/registry.h"

namespace longhaul::transport {
namespace {

class Sender : public LinkHandler, public std::enable_shared_from_this<Sender> {
 public:
  void Start(std::shared_ptr<Link> link) {
    link_ = std::move(link);
    for (int i = 0; i < 16; ++i) Next();
  }
  void OnFrame(Lane, std::span<const std::byte>) override {}
  void OnClosed(const Status& reason) override {
    std::fprintf(stderr, "%s\n", std::string(Message(reason)).c_str());
    std::_Exit(1);
  }

 private:
  void Next() {
    link_->Send(Lane::kBulk, {.header = {}, .body = std::as_bytes(std::span(body_))},
                [self = shared_from_this()](const Status& status) {
                  if (status.ok()) self->Next();
                });
  }
  const std::string body_ = std::string(20'000, 'x');
  std::shared_ptr<Link> link_;
};

int Main(std::string_view backend, const std::string& address) {
  const TransportTraits* const traits = FindTransport(backend);
  if (traits == nullptr) return 2;
  const auto transport = CreateTransport(
      traits->kind, {.bind_address = "127.0.0.1:0", .network_device = "", .coordinator = {}});
  if (!transport.ok()) return 1;
  const auto sender = std::make_shared<Sender>();
  (*transport)
      ->Dial({address}, {RunId("demo-ab12cd"), Stamp(3), EdgeId(0)}, "the secret of this run",
             sender, {}, Deadline::After(absl::Seconds(20)),
             [sender](StatusOr<std::shared_ptr<Link>> link) {
               if (!link.ok()) std::_Exit(1);
               sender->Start(*std::move(link));
             });
  Notification never;
  never.Wait();
  return 0;
}

}  // namespace
}  // namespace longhaul::transport

int main(int argc, char** argv) {
  return argc == 3 ? longhaul::transport::Main(argv[1], argv[2]) : 2;
}
