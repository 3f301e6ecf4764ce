#include "transport/p2p/ucx/handles.h"

#include <fmt/core.h>
#include <ucs/config/global_opts.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

namespace longhaul::transport::ucx {
namespace {

void QuietLog() {
  static std::once_flag once;
  std::call_once(once, [] {
    // A peer that hangs up is an error to UCX's log and everyday life to us; what matters comes as
    // a Status. A user who set the level wants to see it.
    if (std::getenv("UCX_LOG_LEVEL") == nullptr) ucs_global_opts_set_value("LOG_LEVEL", "fatal");
  });
}

struct Setting {
  const char* name;
  const char* old_name;  // before UCX 1.14, where the TCP transport's had no prefix; may be null
  const char* value;
};

Status SetAll(ucp_config_t* config, const std::string& device) {
  const std::array<Setting, 12> settings{{
      // Left alone, UCX tries shared memory between namespaces and aborts.
      {"TLS", nullptr, "tcp"},
      {"SOCKADDR_TLS_PRIORITY", nullptr, "tcp"},
      {"NET_DEVICES", nullptr, device.c_str()},
      // Else a restarted listener fails with "Device is busy".
      {"TCP_CM_REUSEADDR", "CM_REUSEADDR", "y"},
      // Eager only: rendezvous halves each direction.
      {"RNDV_THRESH", nullptr, "inf"},
      // Sent from a copy: a connection that is reset while UCX still reads our frame completes it
      // twice and aborts the process.
      {"ZCOPY_THRESH", nullptr, "inf"},
      // A whole frame in one segment: less copying and assembling than with 8 KiB. UCX aborts on a
      // segment larger than its own limit, so all workers of a run have the same values.
      {"TCP_TX_SEG_SIZE", "TX_SEG_SIZE", "80k"},
      {"TCP_RX_SEG_SIZE", "RX_SEG_SIZE", "80k"},
      // Else each connection holds up the loop, and all links, for a round trip.
      {"TCP_CONN_NB", "CONN_NB", "y"},
      // The links' own heartbeats watch the peer; UCX's and TCP's would only add noise.
      {"KEEPALIVE_INTERVAL", nullptr, "3600s"},
      {"TCP_KEEPIDLE", "KEEPIDLE", "inf"},
      // An attempt to connect has a deadline of its own. (UCX before 1.14 breaks on SYN_CNT.)
      {"TCP_CM_SYN_CNT", nullptr, "2"},
  }};
  for (const auto& [name, old_name, value] : settings) {
    // UCX 1.13 drops the other spelling without a word, newer ones refuse it.
    const ucs_status_t status = ucp_config_modify(config, name, value);
    const bool is_old = old_name != nullptr && ucp_config_modify(config, old_name, value) == UCS_OK;
    if (status != UCS_OK && !is_old) {
      return FromUcs(fmt::format("UCX does not take {}={}", name, value), status);
    }
  }
  return absl::OkStatus();
}

}  // namespace

Status FromUcs(const std::string& what, ucs_status_t status) {
  return Unavailable("{}: {}", what, ucs_status_string(status));
}

StatusOr<std::shared_ptr<Context>> Context::Create(const std::string& device) {
  QuietLog();
  ucp_config_t* config = nullptr;
  if (const ucs_status_t status = ucp_config_read(nullptr, nullptr, &config); status != UCS_OK) {
    return FromUcs("cannot read UCX's settings", status);
  }
  const std::unique_ptr<ucp_config_t, void (*)(ucp_config_t*)> owner(config, &ucp_config_release);
  LH_RETURN_IF_ERROR(SetAll(config, device));
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.name = "longhaul";
  ucp_context_h context = nullptr;
  if (const ucs_status_t status = ucp_init(&params, config, &context); status != UCS_OK) {
    return FromUcs(fmt::format("UCX cannot use the interface {}", device), status);
  }
  return std::make_shared<Context>(context);
}

StatusOr<std::shared_ptr<Worker>> Worker::Create(std::shared_ptr<Context> context) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucp_worker_h worker = nullptr;
  if (const ucs_status_t status = ucp_worker_create(context->get(), &params, &worker);
      status != UCS_OK) {
    return FromUcs("UCX cannot make a worker", status);
  }
  return std::make_shared<Worker>(std::move(context), worker);
}

StatusOr<int> Worker::EventFd() const {
  int fd = -1;
  if (const ucs_status_t status = ucp_worker_get_efd(worker_, &fd); status != UCS_OK) {
    return FromUcs("UCX has no event descriptor", status);
  }
  return fd;
}

Status Worker::SetMessageHandler(unsigned id, ucp_am_recv_callback_t callback, void* arg) {
  ucp_am_handler_param_t params{};
  params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG;
  params.id = id;
  params.cb = callback;
  params.arg = arg;
  if (const ucs_status_t status = ucp_worker_set_am_recv_handler(worker_, &params);
      status != UCS_OK) {
    return FromUcs("UCX takes no message handler", status);
  }
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Listener>> Listener::Create(
    std::shared_ptr<Worker> worker, const SocketAddress& address,
    std::function<void(ucp_conn_request_h)> on_request) {
  std::unique_ptr<Listener> listener(new Listener(std::move(worker)));
  listener->on_request_ = std::move(on_request);
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr.addr = address.get();
  params.sockaddr.addrlen = address.size;
  params.conn_handler.cb = &Listener::OnRequest;
  params.conn_handler.arg = listener.get();
  if (const ucs_status_t status =
          ucp_listener_create(listener->worker_->get(), &params, &listener->listener_);
      status != UCS_OK) {
    listener->listener_ = nullptr;
    return FromUcs(fmt::format("UCX cannot listen at {}", ToString(address)), status);
  }
  return listener;
}

Listener::~Listener() {
  if (listener_ != nullptr) ucp_listener_destroy(listener_);
}

StatusOr<SocketAddress> Listener::Address() const {
  ucp_listener_attr_t attributes{};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  if (const ucs_status_t status = ucp_listener_query(listener_, &attributes); status != UCS_OK) {
    return FromUcs("UCX does not know where it listens", status);
  }
  SocketAddress address;
  address.storage = attributes.sockaddr;
  address.size = sizeof(address.storage);
  return address;
}

void Listener::OnRequest(ucp_conn_request_h request, void* arg) {
  static_cast<Listener*>(arg)->on_request_(request);
}

StatusOr<std::unique_ptr<Endpoint>> Endpoint::Create(std::shared_ptr<Worker> worker,
                                                     ucp_ep_params_t params,
                                                     std::function<void(Status)> on_error) {
  std::unique_ptr<Endpoint> endpoint(new Endpoint(std::move(worker)));
  endpoint->on_error_ = std::make_shared<std::function<void(Status)>>(std::move(on_error));
  params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = &Endpoint::OnError;
  params.err_handler.arg = endpoint->on_error_.get();
  if (const ucs_status_t status =
          ucp_ep_create(endpoint->worker_->get(), &params, &endpoint->endpoint_);
      status != UCS_OK) {
    endpoint->endpoint_ = nullptr;
    return FromUcs("UCX cannot make an endpoint", status);
  }
  return endpoint;
}

StatusOr<std::unique_ptr<Endpoint>> Endpoint::Connect(std::shared_ptr<Worker> worker,
                                                      const SocketAddress& peer,
                                                      std::function<void(Status)> on_error) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr.addr = peer.get();
  params.sockaddr.addrlen = peer.size;
  return Create(std::move(worker), params, std::move(on_error));
}

StatusOr<std::unique_ptr<Endpoint>> Endpoint::Accept(std::shared_ptr<Worker> worker,
                                                     ucp_conn_request_h request,
                                                     std::function<void(Status)> on_error) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
  params.conn_request = request;
  return Create(std::move(worker), params, std::move(on_error));
}

void Endpoint::OnError(void* arg, ucp_ep_h, ucs_status_t status) {
  (*static_cast<std::function<void(Status)>*>(arg))(FromUcs("the connection is broken", status));
}

Endpoint::~Endpoint() {
  if (endpoint_ != nullptr) Close([] {});
}

void Endpoint::Close(std::function<void()> done) {
  struct Closing {
    std::function<void()> done;
    std::shared_ptr<std::function<void(Status)>> on_error;  // until UCX has forgotten it
  };
  auto closing = std::make_unique<Closing>(Closing{std::move(done), on_error_});
  *on_error_ = [](const Status&) {};
  ucp_request_param_t params{};
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  params.user_data = closing.get();
  params.cb.send = [](void* request, ucs_status_t, void* user_data) {
    const std::unique_ptr<Closing> closed(static_cast<Closing*>(user_data));
    ucp_request_free(request);
    closed->done();
  };
  void* const request = ucp_ep_close_nbx(std::exchange(endpoint_, nullptr), &params);
  if (UCS_PTR_IS_PTR(request)) {
    static_cast<void>(closing.release());  // the callback has it
  } else {
    closing->done();
  }
}

}  // namespace longhaul::transport::ucx
