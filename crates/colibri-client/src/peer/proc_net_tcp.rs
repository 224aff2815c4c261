//! `/proc/net/tcp`: a line an end, numbers in hexadecimal, addresses as they stand in memory.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::end::{SocketEnd, TcpState};

/// The ends in a text; a line that is none is passed over.
pub(super) fn read(text: &str) -> Vec<SocketEnd> {
    text.lines().skip(1).filter_map(line).collect()
}

fn line(line: &str) -> Option<SocketEnd> {
    // sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
    let mut words = line.split_ascii_whitespace().skip(1);
    let local = address(words.next()?)?;
    let remote = address(words.next()?)?;
    // include/net/tcp_states.h
    let state = match words.next()? {
        "0A" => TcpState::Listen,
        "01" => TcpState::Established,
        "04" | "05" => TcpState::HalfClosed,
        _ => TcpState::Other,
    };
    let uid = words.nth(3)?.parse().ok()?;
    let inode: u64 = words.nth(1)?.parse().ok()?;
    Some(SocketEnd {
        local,
        remote,
        state,
        uid,
        is_live: inode != 0,
    })
}

fn address(text: &str) -> Option<SocketAddrV4> {
    let (address, port) = text.split_once(':')?;
    let address = u32::from_str_radix(address, 16).ok()?.to_ne_bytes();
    Some(SocketAddrV4::new(
        Ipv4Addr::from(address),
        u16::from_str_radix(port, 16).ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn lines_are_read_as_the_kernel_writes_them() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            \x20  0: 0100007F:0FA0 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 9001 1 0 100 0 0 10 0\n\
            \x20  1: 0100007F:1388 0100007F:0FA0 05 00000000:00000000 02:00000A2B 00000000  1000        0 0 2 0 20 4 30 10 -1\n\
            garbage\n\
            \x20  2: 0100007F:1389 0100007F:0FA0 01 00000000:00000000 00:00000000 00000000 65534        0 77 1 0 20 4 30 10 -1\n";
        let at = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let nobody = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let ends = read(text);
        let plain: Vec<_> = ends
            .iter()
            .map(|end| (end.local, end.remote, end.state, end.uid, end.is_live))
            .collect();
        assert_eq!(
            plain,
            [
                (at(4000), nobody, TcpState::Listen, 1000, true),
                (at(5000), at(4000), TcpState::HalfClosed, 1000, false),
                (at(5001), at(4000), TcpState::Established, 65534, true),
            ]
        );
        assert_eq!(read(""), []);
    }
}
