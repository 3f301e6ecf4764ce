#include "transport/p2p/ucx/backend.h"

#include <fmt/core.h>

#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/address.h"
#include "base/log.h"
#include "transport/p2p/core/transport_core.h"
#include "transport/p2p/ucx/connection.h"
#include "transport/p2p/ucx/handles.h"
#include "transport/p2p/ucx/port_filter.h"
#include "transport/p2p/ucx/socket_address.h"

namespace longhaul::transport::ucx {
namespace {

using internal::Connection;

// Closing endpoints by force takes milliseconds; a worker that does not answer is given up.
constexpr absl::Duration kShutdownLimit = absl::Seconds(2);
// UCX reads one frame of a connection at a time. It reads as many as a link sends at once, or of
// two busy ends one would send ever more and the other ever less.
constexpr int kProgressAtOnce = 4;

class UcxBackend : public internal::Backend, public Poller {
 public:
  explicit UcxBackend(UcxOptions options) : options_(std::move(options)) {}

  ~UcxBackend() override {
    if (filter_) filter_->Close();
    if (polling_) loop_->SetPoller(nullptr).IgnoreError();
  }

  std::string name() const override { return "ucx"; }

  StatusOr<std::string> Start(const std::shared_ptr<EventLoop>& loop, Accept accept) override {
    loop_ = loop;
    accept_ = std::move(accept);
    LH_ASSIGN_OR_RETURN(const SocketAddress bind_address,
                        ParseAddress(options_.bind_address, /*resolve=*/true));
    LH_RETURN_IF_ERROR(CheckFamily(bind_address));
    LH_ASSIGN_OR_RETURN(std::string device, InterfaceOf(bind_address));
    if (!options_.network_device.empty()) device = options_.network_device;
    LH_RETURN_IF_ERROR(CheckBind(bind_address));
    LH_ASSIGN_OR_RETURN(std::shared_ptr<Context> context, Context::Create(device));
    LH_ASSIGN_OR_RETURN(table_->async_thread, AsyncThread::Create());
    // UCX's thread would accept strangers who come between the listening and the filter.
    Status listens;
    table_->async_thread->MakeWhileHeld(
        [&] { listens = Listen(std::move(context), bind_address); });
    LH_RETURN_IF_ERROR(listens);
    LH_RETURN_IF_ERROR(worker_->SetMessageHandler(kMessageId, &UcxBackend::OnMessage, this));
    LH_ASSIGN_OR_RETURN(event_fd_, worker_->EventFd());
    LH_RETURN_IF_ERROR(loop_->SetPoller(this));
    polling_ = true;
    return address_;
  }

  StatusOr<std::shared_ptr<Connection>> Connect(const std::string& address) override {
    const StatusOr<SocketAddress> numeric = ParseAddress(address, /*resolve=*/false);
    LH_RETURN_IF_ERROR(numeric.ok() ? CheckFamily(*numeric) : ParseHostPort(address).status());
    const auto connection = UcxConnection::Create(loop_, worker_, table_, address_, address);
    if (numeric.ok()) {
      connection->Connect(*numeric);
      return connection;
    }
    // A name server may take its time: not on the loop.
    std::thread([loop = loop_, weak = std::weak_ptr(connection), address] {
      StatusOr<SocketAddress> resolved = ParseAddress(address, /*resolve=*/true);
      if (resolved.ok()) {
        if (const Status family = CheckFamily(*resolved); !family.ok()) resolved = family;
      }
      loop->Post([weak, resolved] {
        const auto waiting = weak.lock();
        if (!waiting) return;
        resolved.ok() ? waiting->Connect(*resolved) : waiting->FailToStart(resolved.status());
      });
    }).detach();
    return connection;
  }

  std::shared_ptr<void> AdmitPeers(const std::vector<std::string>& addresses) override {
    if (addresses.empty()) return filter_->AdmitAll();
    std::vector<SocketAddress> numeric;
    std::vector<std::string> names;
    for (const std::string& address : addresses) {
      StatusOr<SocketAddress> parsed = ParseAddress(address, /*resolve=*/false);
      parsed.ok() ? numeric.push_back(*parsed) : names.push_back(address);
    }
    auto admitted = std::make_shared<std::vector<std::shared_ptr<void>>>();
    admitted->push_back(filter_->Admit(numeric));
    if (!names.empty()) AdmitNamed(std::move(names), admitted);
    return admitted;
  }

  void Shutdown(std::function<void()> done) override {
    table_->shutting_down = true;
    filter_->Close();
    for (ucp_conn_request_h request : std::exchange(requests_, {})) listener_->Reject(request);
    listener_.reset();
    const auto limit = std::make_shared<std::optional<EventLoop::TimerId>>();
    *limit = loop_->AddTimer(Now() + kShutdownLimit, [table = table_, limit] {
      limit->reset();
      LogError("UCX did not close {} connections", table->connections.size());
      table->connections.Forget();
    });
    table_->connections.CloseAll([loop = loop_, limit, done = std::move(done)] {
      if (*limit) loop->CancelTimer(**limit);
      loop->Post(done);
    });
  }

  int fd() const override { return event_fd_; }

  bool Progress() override {
    table_->inside_ucx = true;
    bool worked = false;
    for (int i = 0; i < kProgressAtOnce; ++i) {
      if (ucp_worker_progress(worker_->get()) == 0) break;
      worked = true;
    }
    table_->inside_ucx = false;
    // Sends that UCX's callbacks asked for go out here: UCX must not be entered again from inside
    // one.
    for (const auto& connection : std::exchange(table_->to_flush, {})) {
      connection->Flush();
      worked = true;
    }
    for (ucp_conn_request_h request : std::exchange(requests_, {})) {
      AcceptRequest(request);
      worked = true;
    }
    return worked;
  }

  bool Arm() override { return ucp_worker_arm(worker_->get()) == UCS_OK; }

 private:
  // Makes the worker and the listener. Nobody can connect to their ports, of which UCX has more
  // than one, until AdmitPeers.
  Status Listen(std::shared_ptr<Context> context, const SocketAddress& bind_address) {
    LH_ASSIGN_OR_RETURN(const std::set<int> before, ListeningSockets());
    LH_ASSIGN_OR_RETURN(worker_, Worker::Create(std::move(context)));
    LH_ASSIGN_OR_RETURN(listener_,
                        Listener::Create(worker_, bind_address, [this](ucp_conn_request_h request) {
                          requests_.push_back(request);  // dealt with outside UCX's callback
                        }));
    LH_ASSIGN_OR_RETURN(const SocketAddress bound, listener_->Address());
    address_ = ToString(bound);
    LH_ASSIGN_OR_RETURN(std::set<int> sockets, ListeningSockets());
    for (const int other : before) sockets.erase(other);
    if (sockets.empty()) return absl::InternalError("UCX listens, and its sockets are not found");
    LH_ASSIGN_OR_RETURN(filter_, PortFilter::Create(std::move(sockets), bound));
    if (options_.admits_all) all_ = filter_->AdmitAll();
    return absl::OkStatus();
  }

  // A name server may take its time: not on the loop.
  void AdmitNamed(std::vector<std::string> names,
                  const std::weak_ptr<std::vector<std::shared_ptr<void>>>& admitted) {
    std::thread([loop = loop_, filter = std::weak_ptr(filter_), names = std::move(names),
                 admitted] {
      std::vector<SocketAddress> found;
      for (const std::string& name : names) {
        const StatusOr<SocketAddress> one = ParseAddress(name, /*resolve=*/true);
        if (one.ok()) found.push_back(*one);
      }
      loop->Post([filter, found, admitted] {
        const auto held = admitted.lock();
        const auto ports = filter.lock();
        if (held && ports) held->push_back(ports->Admit(found));
      });
    }).detach();
  }

  void AcceptRequest(ucp_conn_request_h request) {
    if (table_->shutting_down) return listener_->Reject(request);
    ucp_conn_request_attr_t attributes{};
    attributes.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR;
    SocketAddress peer;
    if (ucp_conn_request_query(request, &attributes) == UCS_OK) {
      peer.storage = attributes.client_address;
    }
    const auto connection = UcxConnection::Create(loop_, worker_, table_, address_, ToString(peer));
    connection->Accept(request);
    accept_(connection);
  }

  static ucs_status_t OnMessage(void* arg, const void* header, size_t header_bytes, void* data,
                                size_t bytes, const ucp_am_recv_param_t* param) {
    const auto& table = *static_cast<UcxBackend*>(arg)->table_;
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0) return UCS_OK;  // not ours
    const auto found = table.by_endpoint.find(param->reply_ep);
    if (found == table.by_endpoint.end()) return UCS_OK;  // closed meanwhile
    const std::shared_ptr<UcxConnection> connection = found->second->shared_from_this();
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
      // `data` is a descriptor then, not the payload; longhaul's own peers never send so.
      connection->CloseWith(absl::InvalidArgumentError("the peer sends by rendezvous"));
      return UCS_OK;
    }
    connection->Deliver({static_cast<const std::byte*>(header), header_bytes},
                        {static_cast<const std::byte*>(data), bytes});
    return UCS_OK;
  }

  const UcxOptions options_;
  std::shared_ptr<EventLoop> loop_;
  Accept accept_;
  std::string address_;
  std::shared_ptr<Worker> worker_;
  int event_fd_ = -1;
  std::unique_ptr<Listener> listener_;
  std::shared_ptr<PortFilter> filter_;
  std::shared_ptr<void> all_;  // options_.admits_all
  std::vector<ucp_conn_request_h> requests_;
  const std::shared_ptr<ConnectionTable> table_ = std::make_shared<ConnectionTable>();
  bool polling_ = false;
};

}  // namespace

std::unique_ptr<internal::Backend> NewBackend(const UcxOptions& options) {
  return std::make_unique<UcxBackend>(options);
}

Status MayUse() {
  return TakesFilters();
}

StatusOr<std::unique_ptr<Transport>> CreateTransport(const UcxOptions& options) {
  return internal::NewTransport(NewBackend(options));
}

}  // namespace longhaul::transport::ucx
