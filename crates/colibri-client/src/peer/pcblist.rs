//! `net.inet.tcp.pcblist`: a `struct xinpgen`, a `struct xtcpcb` an end, and another `struct
//! xinpgen`, as FreeBSD 13 to 15 have them on 64-bit machines (sys/netinet/in_pcb.h,
//! sys/netinet/tcp_var.h, sys/sys/socketvar.h).
//!
//! The layout is the kernel's promise to netstat(1) and sockstat(1), with room kept for what is
//! new. Should it change all the same, the size of an end changes, and nothing is read.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use super::end::{SocketEnd, TcpState};

/// The size of a `struct xinpgen`: xig_len, xig_count and 4 bytes of room, xig_gen, xig_sogen, 32
/// bytes of room.
const XINPGEN: usize = 64;
/// The offset of its xig_gen: entries made after that may be half made.
const XIG_GEN: usize = 16;
/// The size of a `struct xtcpcb`.
const XTCPCB: usize = 744;
// Within it: xt_len (8 bytes), then xt_inp, a `struct xinpcb`: xi_len (8), then xi_socket, a
// `struct xsocket` of 240 bytes, then inp_inc.
/// xt_inp.xi_socket.xso_so: the kernel's address of the socket, 0 without one.
const XSO_SO: usize = 8 + 8 + 8;
/// xt_inp.xi_socket.so_uid: whose it is.
const SO_UID: usize = 8 + 8 + 120;
/// xt_inp.inp_inc.inc_ie: ports in network order, two addresses of 16 bytes each, of which IPv4 has
/// the last four.
const INC_IE: usize = 8 + 8 + 240 + 4;
const FOREIGN_PORT: usize = INC_IE;
const LOCAL_PORT: usize = INC_IE + 2;
const FOREIGN_ADDRESS: usize = INC_IE + 4 + 12;
const LOCAL_ADDRESS: usize = INC_IE + 4 + 16 + 12;
/// xt_inp.inp_gencnt
const INP_GENCNT: usize = 8 + 296;
/// xt_inp.inp_vflag
const INP_VFLAG: usize = 8 + 392;
/// Of it: IPv4.
const INP_IPV4: u8 = 1;
/// t_state
const T_STATE: usize = 568;
/// t_flags
const T_FLAGS: usize = 572;
/// Of them: TF_CLOSED, its process has closed it. Its socket stays as long as the connection does.
const TF_CLOSED: u32 = 0x0400_0000;

/// The ends of IPv4 in a table.
pub(super) fn read(table: &[u8]) -> io::Result<Vec<SocketEnd>> {
    let unknown = || io::Error::other("net.inet.tcp.pcblist has a layout that is not known here");
    if u64_at(table, 0) != Some(XINPGEN as u64) {
        return Err(unknown());
    }
    let generation = u64_at(table, XIG_GEN).ok_or_else(unknown)?;
    let mut rest = table.get(XINPGEN..).ok_or_else(unknown)?;
    let mut ends = Vec::new();
    loop {
        match u64_at(rest, 0) {
            Some(length) if length == XTCPCB as u64 => {}
            Some(length) if length == XINPGEN as u64 => return Ok(ends),
            _ => return Err(unknown()),
        }
        let (one, after) = rest.split_at_checked(XTCPCB).ok_or_else(unknown)?;
        if u64_at(one, INP_GENCNT).is_some_and(|made| made <= generation) {
            ends.extend(end(one));
        }
        rest = after;
    }
}

/// An end, if it is one of IPv4.
fn end(one: &[u8]) -> Option<SocketEnd> {
    if one.get(INP_VFLAG)? & INP_IPV4 == 0 {
        return None;
    }
    let at = |address, port| {
        let address: [u8; 4] = bytes_at(one, address)?;
        Some(SocketAddrV4::new(
            Ipv4Addr::from(address),
            u16::from_be_bytes(bytes_at(one, port)?),
        ))
    };
    Some(SocketEnd {
        local: at(LOCAL_ADDRESS, LOCAL_PORT)?,
        remote: at(FOREIGN_ADDRESS, FOREIGN_PORT)?,
        // sys/netinet/tcp_fsm.h
        state: match i32::from_ne_bytes(bytes_at(one, T_STATE)?) {
            1 => TcpState::Listen,
            4 => TcpState::Established,
            6 | 9 => TcpState::HalfClosed,
            _ => TcpState::Other,
        },
        uid: u32_at(one, SO_UID)?,
        is_live: u64_at(one, XSO_SO)? != 0 && u32_at(one, T_FLAGS)? & TF_CLOSED == 0,
    })
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes_at(bytes, at).map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes_at(bytes, at).map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `struct xinpgen` of this generation.
    fn generation(number: u64) -> Vec<u8> {
        let mut bytes = 64_u64.to_ne_bytes().to_vec();
        bytes.extend(2_u32.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(number.to_ne_bytes());
        bytes.resize(64, 0);
        bytes
    }

    /// A `struct xtcpcb`, member by member as FreeBSD 15.1 declares them.
    fn xtcpcb(
        ports: (u16, u16),
        (state, flags): (i32, u32),
        (so, uid): (u64, u32),
        (made, vflag): (u64, u8),
    ) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(744_u64.to_ne_bytes()); // xt_len
        bytes.extend(400_u64.to_ne_bytes()); // xt_inp.xi_len
        bytes.extend(240_u64.to_ne_bytes()); // xi_socket.xso_len
        bytes.extend(so.to_ne_bytes()); // xso_so
        bytes.extend([0x11; 16]); // so_pcb, so_oobmark
        bytes.extend([0x22; 64]); // so_splice_so, so_spare64[7]
        bytes.extend([0x33; 24]); // xso_protocol, xso_family, so_qlen, so_incqlen, so_qlimit, so_pgid
        bytes.extend(uid.to_ne_bytes()); // so_uid
        bytes.extend([0x44; 32]); // so_fibnum, so_spare32[7]
        bytes.extend([0x55; 12]); // so_type, so_options, so_linger, so_state, so_timeo, so_error
        bytes.extend([0x66; 72]); // so_rcv, so_snd
        bytes.extend([0x77; 4]); // inp_inc: inc_flags, inc_len, inc_fibnum
        bytes.extend(ports.1.to_be_bytes()); // ie_fport
        bytes.extend(ports.0.to_be_bytes()); // ie_lport
        bytes.extend([0; 12]);
        bytes.extend([127, 0, 0, 1]); // ie_faddr
        bytes.extend([0; 12]);
        bytes.extend([127, 0, 0, 1]); // ie_laddr
        bytes.extend([0; 4]); // ie6_zoneid
        bytes.extend([0; 4]); // up to eight bytes
        bytes.extend(made.to_ne_bytes()); // inp_gencnt
        bytes.extend([0x88; 40]); // inp_spare64[5]
        bytes.extend([0x99; 48]); // inp_flow to in6p_cksum, inp_spare32[4], in6p_hops, inp_ip_tos, pad8
        bytes.push(vflag); // inp_vflag
        bytes.extend([0xaa; 7]); // inp_ip_ttl, inp_ip_p, inp_ip_minttl, inp_spare8[4]
        bytes.extend([0xbb; 112]); // xt_stack, xt_logid, xt_cc
        bytes.extend([0xcc; 48]); // spare64[6]
        bytes.extend(state.to_ne_bytes()); // t_state
        bytes.extend(flags.to_ne_bytes()); // t_flags
        bytes.resize(744, 0xdd);
        bytes
    }

    #[test]
    fn ends_are_read_as_the_kernel_lays_them_out() {
        let table = [
            generation(10),
            xtcpcb((4000, 0), (1, 0), (0xffff_f800_0000_0001, 1001), (3, 1)),
            xtcpcb((5000, 4000), (4, 0), (1, 1001), (4, 1)),
            xtcpcb((5001, 4000), (9, 0), (1, 0), (5, 1)),
            // Without a socket, closed, of IPv6, made since.
            xtcpcb((5002, 4000), (9, 0), (0, 0), (6, 1)),
            xtcpcb((5003, 4000), (9, TF_CLOSED), (1, 1001), (7, 1)),
            xtcpcb((5004, 4000), (4, 0), (1, 1001), (8, 2)),
            xtcpcb((5005, 4000), (4, 0), (1, 1001), (11, 1)),
            generation(11),
        ]
        .concat();
        let ends = read(&table).unwrap();
        let port = |end: &SocketEnd| (end.local.port(), end.remote.port());
        let plain: Vec<_> = ends
            .iter()
            .map(|end| (port(end), end.state, end.uid, end.is_live))
            .collect();
        assert_eq!(
            plain,
            [
                ((4000, 0), TcpState::Listen, 1001, true),
                ((5000, 4000), TcpState::Established, 1001, true),
                ((5001, 4000), TcpState::HalfClosed, 0, true),
                ((5002, 4000), TcpState::HalfClosed, 0, false),
                ((5003, 4000), TcpState::HalfClosed, 1001, false),
            ]
        );
        assert!(
            ends.iter().all(|end| end.local.ip() == &Ipv4Addr::LOCALHOST
                && end.remote.ip() == &Ipv4Addr::LOCALHOST)
        );
    }

    #[test]
    fn another_layout_is_not_guessed_at() {
        let one = xtcpcb((5000, 4000), (4, 0), (1, 1001), (4, 1));
        let good = [generation(10), one.clone(), generation(10)].concat();
        assert_eq!(read(&good).unwrap().len(), 1);
        let mut longer = one.clone();
        longer[0] += 8;
        let cut = &good[..good.len() - 100];
        for bad in [
            Vec::new(),
            one.clone(),
            [generation(10), longer].concat(),
            generation(10),
            cut.to_vec(),
        ] {
            assert!(read(&bad).is_err());
        }
    }
}
