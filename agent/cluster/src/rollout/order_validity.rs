//! Whether a node may still obey an order. The controller withdraws orders that no longer apply. Because the controller may be down at
//! that time, most orders also expire.

use time::OffsetDateTime;

use super::order::{Order, Task};
use kops_agent_spec::parse_timestamp;

/// Whether a node may still act on an order, according to the present annotation of its Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderValidity {
    InForce,
    /// The Node has another order or no order. The controller no longer waits for the outcome of the withdrawn order.
    Withdrawn,
    /// The deadline for the node to begin has passed, or the order has no valid deadline. The text says which. An order to take a
    /// configuration does not expire.
    Expired(String),
}

impl OrderValidity {
    /// `annotation` is the present value of the Node's annotation with an order; `None` if the Node has no such annotation.
    pub fn new(order: &Order, annotation: Option<&str>, now: OffsetDateTime) -> OrderValidity {
        if annotation.and_then(Order::read).as_ref() != Some(order) {
            return OrderValidity::Withdrawn;
        }
        let task = match order.task() {
            Task::Configuration => return OrderValidity::InForce,
            Task::Reboot => "to reboot",
            Task::Program => "to run another version of kops-agent",
        };
        match parse_timestamp(&order.until) {
            Some(until) if now <= until => OrderValidity::InForce,
            Some(_) => OrderValidity::Expired(format!("the order {task} has expired at {}", order.until)),
            None => OrderValidity::Expired(format!(
                "the order {task} has no valid expiry time ({:?})",
                order.until
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::DrainMode;
    use super::*;

    #[test]
    fn only_the_same_order_within_its_time_is_obeyed() {
        let order = Order {
            rollout: "r-1".into(),
            attempt: 1,
            hash: "rebooted".into(),
            authorities: String::new(),
            drain: DrainMode::Auto,
            max_unavailable: 1,
            health_timeout: 300,
            may_go_back: false,
            boot_id: "b1".into(),
            program: false,
            at: "2026-11-30T10:00:00Z".into(),
            until: "2026-11-30T11:00:00Z".into(),
        };
        let at = |time: &str| parse_timestamp(time).unwrap();
        let [early, last, late] =
            ["2026-11-30T10:59:59Z", "2026-11-30T11:00:00Z", "2026-11-30T11:00:01Z"].map(at);
        let validity = |order: &Order, now| OrderValidity::new(order, Some(&order.text()), now);
        assert_eq!(
            (validity(&order, early), validity(&order, last)),
            (OrderValidity::InForce, OrderValidity::InForce)
        );
        assert!(matches!(validity(&order, late), OrderValidity::Expired(why) if why.contains("11:00:00Z")));
        for until in ["", "soon"] {
            let order = Order { until: until.into(), ..order.clone() };
            assert!(matches!(validity(&order, early), OrderValidity::Expired(_)), "{until:?}");
        }
        for other in [
            Order { attempt: 2, ..order.clone() },
            Order { boot_id: "b2".into(), ..order.clone() },
            Order { until: "2026-11-30T12:00:00Z".into(), ..order.clone() },
        ] {
            assert_eq!(
                OrderValidity::new(&order, Some(&other.text()), early),
                OrderValidity::Withdrawn,
                "{other:?}"
            );
        }
        let of_program = Order { boot_id: String::new(), program: true, ..order.clone() };
        assert_eq!(validity(&of_program, last), OrderValidity::InForce);
        assert!(
            matches!(validity(&of_program, late), OrderValidity::Expired(why) if why.contains("version of kops-agent"))
        );
        let of_configuration = Order { program: false, until: String::new(), ..of_program.clone() };
        assert_eq!(validity(&of_configuration, late), OrderValidity::InForce);
        assert_eq!(OrderValidity::new(&of_program, Some(&order.text()), early), OrderValidity::Withdrawn);
        assert_eq!(OrderValidity::new(&order, None, early), OrderValidity::Withdrawn);
        assert_eq!(OrderValidity::new(&order, Some("{}"), early), OrderValidity::Withdrawn);
    }
}
