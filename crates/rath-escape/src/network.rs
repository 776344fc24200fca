//! Attempts to use the network.

use std::fs;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::time::Duration;

use libc::{AF_INET, AF_NETLINK, AF_PACKET, SOCK_DGRAM, SOCK_RAW, SYS_socket, c_int};

use crate::attempt::{Attempt, Tried, harmful, harmless, refused};
use crate::facts::{Facts, MARK};
use crate::secrets::holds;
use crate::sys::{any_of, call, named};

pub(crate) const ATTEMPTS: &[Attempt] = &[
    harmless("loopback", "connect to a port of the host's loopback", |facts| {
        greeted(SocketAddr::new([127, 0, 0, 1].into(), port(facts)?))
    }),
    harmless("loopback-six", "connect to a port of the host's IPv6 loopback", |facts| {
        greeted(SocketAddr::new([0, 0, 0, 0, 0, 0, 0, 1].into(), facts.number("port_six")? as u16))
    }),
    harmless("loopback-any", "connect to a port of the host by 0.0.0.0", |facts| {
        greeted(SocketAddr::new([0, 0, 0, 0].into(), port(facts)?))
    }),
    harmless("host-addresses", "connect to the host by its own addresses", |facts| {
        let port = port(facts)?;
        let addresses = facts.text("addresses")?.split(',').filter_map(|text| text.parse::<IpAddr>().ok());
        any_of("addresses", addresses, |address| greeted(SocketAddr::new(address, port)))
    }),
    harmless("loopback-message", "send a UDP message to the host's loopback and hear the echo", |facts| {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(Duration::from_millis(500)))?;
        socket.send_to(b"echo", ("127.0.0.1", facts.number("udp")? as u16))?;
        let mut bytes = [0; 64];
        let read = socket.recv(&mut bytes)?;
        if holds(&bytes[..read], MARK) { Ok("received a reply".to_owned()) } else { Err(refused("another echo")) }
    }),
    harmful("internet-message", "send a UDP message to the internet", |_| send_question("8.8.8.8:53")),
    harmful("internet-message-six", "send a UDP message to the internet by IPv6", |_| {
        send_question("[2001:4860:4860::8888]:53")
    }),
    harmful("internet", "connect to the internet", |_| {
        let addresses = [[1, 1, 1, 1], [8, 8, 8, 8]].map(|address| SocketAddr::new(address.into(), 443));
        any_of("addresses", addresses, |address| {
            TcpStream::connect_timeout(&address, Duration::from_secs(3))?;
            Ok(format!("connected to {address}"))
        })
    }),
    harmful("cloud-metadata", "connect to the cloud metadata service", |_| {
        let address = SocketAddr::new([169, 254, 169, 254].into(), 80);
        TcpStream::connect_timeout(&address, Duration::from_secs(3))?;
        Ok(format!("connected to {address}"))
    }),
    harmful("name-servers", "send a question to the machine's name servers", |_| {
        let resolv = fs::read_to_string("/etc/resolv.conf").map_err(named("/etc/resolv.conf"))?;
        let servers = resolv.lines().filter_map(|line| line.strip_prefix("nameserver "));
        any_of("name servers", servers.map(str::trim), |server| send_question(&format!("{server}:53")))
    }),
    harmful("look-up-name", "look up a name", |_| {
        let mut found = ("example.com", 80).to_socket_addrs()?;
        found.next().map(|address| format!("example.com is {address}")).ok_or_else(|| refused("nothing found"))
    }),
    harmless("raw-socket", "make a raw socket", |_| socket(AF_INET, SOCK_RAW, libc::IPPROTO_ICMP)),
    harmful("ping-socket", "ping an address", |_| {
        let socket = call!(SYS_socket, AF_INET, SOCK_DGRAM, libc::IPPROTO_ICMP).map_err(named("socket"))?;
        let address: [u8; 16] = [2, 0, 0, 0, 8, 8, 8, 8, 0, 0, 0, 0, 0, 0, 0, 0];
        let echo = [8u8, 0, 0, 0, 0, 0, 0, 0];
        call!(libc::SYS_sendto, socket, echo.as_ptr(), 8, 0, address.as_ptr(), 16).map_err(named("sendto"))?;
        Ok("sent it".to_owned())
    }),
    harmless("packet-socket", "make a packet socket", |_| {
        any_of("kinds", [SOCK_RAW, SOCK_DGRAM], |kind| socket(AF_PACKET, kind, 0x0300))
    }),
    harmless("change-interfaces", "change a network interface", change_interface),
    harmless("kernel-audit", "listen to the kernel's audit and packet filter", |_| {
        any_of("protocols", [9, 12], |protocol| {
            let socket = call!(SYS_socket, AF_NETLINK, SOCK_RAW, protocol).map_err(named("socket"))?;
            let address: [u32; 3] = [AF_NETLINK as u32, 0, 1];
            call!(libc::SYS_bind, socket, address.as_ptr(), 12).map_err(named("bind"))?;
            Ok(format!("listens to netlink {protocol}"))
        })
    }),
    harmless("virtual-machine-socket", "make a socket to the machine's own host", |_| socket(libc::AF_VSOCK, 1, 0)),
    harmless("crypto-socket", "make a socket of the kernel's crypto", |_| socket(libc::AF_ALG, 5, 0)),
    harmful("odd-sockets", "create sockets of rare address families", |_| {
        let families =
            [3, 4, 5, 6, 8, 9, 15, 21, 23, 24, 26, 27, 28, 29, 30, 31, 32, 33, 35, 36, 37, 39, 41, 42, 43, 44, 45];
        any_of("families", families, |family| {
            let kinds = [SOCK_DGRAM, SOCK_RAW, 1, 5];
            let made = kinds.into_iter().any(|kind| call!(SYS_socket, family, kind, 0).is_ok());
            if made { Ok(format!("family {family}")) } else { Err(refused(format!("family {family} is not there"))) }
        })
    }),
];

fn port(facts: &Facts) -> Result<u16, crate::attempt::Failed> {
    facts.number("port").map(|port| port as u16)
}

/// Connects to a listener of the harness, which sends a greeting.
fn greeted(address: SocketAddr) -> Tried {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(3))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut bytes = [0; 64];
    let read = stream.read(&mut bytes)?;
    match holds(&bytes[..read], MARK) {
        true => Ok(format!("connected to {address}")),
        false => Err(refused("another process answers here")),
    }
}

/// Sends a DNS query. Sending is enough, because the query itself can carry data.
fn send_question(to: &str) -> Tried {
    let question = b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x01\0\x01";
    let own = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
    UdpSocket::bind(own)?.send_to(question, to)?;
    Ok(format!("sent to {to}"))
}

fn socket(family: c_int, kind: c_int, protocol: c_int) -> Tried {
    call!(SYS_socket, family, kind, protocol).map_err(named("socket"))?;
    Ok("made one".to_owned())
}

/// Requests an empty change of the first network interface, which succeeds only with the permission to change it.
fn change_interface(_: &Facts) -> Tried {
    let socket = call!(SYS_socket, AF_NETLINK, SOCK_RAW, 0).map_err(named("socket"))?;
    // A header (size, RTM_NEWLINK, request and acknowledge), then family, index 1, no flags, no changes.
    let request: [u32; 8] = [32, 16 | 5 << 16, 1, 0, 0, 1, 0, 0];
    call!(libc::SYS_sendto, socket, request.as_ptr(), 32, 0, 0, 0).map_err(named("send"))?;
    let mut reply = [0i32; 256];
    call!(libc::SYS_recvfrom, socket, reply.as_mut_ptr(), 1024, 0, 0, 0).map_err(named("receive"))?;
    match reply[4] {
        0 => Ok("may change it".to_owned()),
        error => Err(std::io::Error::from_raw_os_error(-error).into()),
    }
}
